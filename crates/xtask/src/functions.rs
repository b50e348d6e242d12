//! Where functions begin and end, by the indentation that rustfmt gives them: the closing brace
//! stands alone under the line that opened the item. No parser is needed for that, as long as
//! the tree is formatted, which CI checks first.

/// One function.
#[derive(Debug)]
pub struct Function<'a> {
    /// Its name.
    pub name: &'a str,
    /// The line it begins on, from 1.
    pub line: usize,
    /// Lines from its first to its closing brace.
    pub lines: usize,
}

/// The functions of a formatted source file that are longer than one line.
pub fn functions(text: &str) -> Vec<Function<'_>> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = name(line) else { continue };
        let indent = line.len() - line.trim_start().len();
        let closing = format!("{}}}", " ".repeat(indent));
        let body = lines.get(at..).unwrap_or_default();
        // A declaration without a body ends before anything at its own level closes.
        let end = body.iter().position(|line| {
            *line == closing
                || (line.ends_with(';') && line.len() - line.trim_start().len() == indent)
        });
        if let Some(end) = end {
            found.push(Function { name, line: at + 1, lines: end + 1 });
        }
    }
    found
}

/// The name of the function that a line begins, if it begins one.
fn name(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    if rest.ends_with('}') || rest.starts_with("//") {
        return None;
    }
    for word in ["pub", "const", "unsafe", "async", "extern"] {
        if let Some(after) = rest.strip_prefix(word) {
            rest = match after.strip_prefix('(') {
                Some(scope) => scope.split_once(')')?.1.trim_start(),
                None => after.strip_prefix(' ').unwrap_or(rest).trim_start(),
            };
            if let Some(abi) = rest.strip_prefix("\"C\" ") {
                rest = abi;
            }
        }
    }
    let rest = rest.strip_prefix("fn ")?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_measured() {
        let text = "pub(crate) fn a() {\n    x();\n}\nfn one() {}\ntrait T {\n    fn b(\n        \
                    c: u8,\n    );\n    const unsafe fn d() {\n        if x {\n        }\n    }\n}\n";
        let found: Vec<_> =
            functions(text).into_iter().map(|f| (f.name, f.line, f.lines)).collect();
        assert_eq!(found, [("a", 1, 3), ("b", 6, 3), ("d", 9, 4)]);
    }
}

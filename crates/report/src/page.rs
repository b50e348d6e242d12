//! A report as one HTML file: style and figures stand in it, nothing is fetched and nothing is
//! executed, which the page itself forbids as well.

use std::collections::BTreeMap;

use crate::figures::{self, Figure};
use crate::markup::{escape, put, putln};
use crate::run::{Run, Warning};
use crate::tables::{self, Table};

const STYLE: &str = include_str!("page/style.css");
/// Style and an empty icon, both in the page: nothing else may be loaded or run.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; \
                      base-uri 'none'; form-action 'none'";

/// What a run is called.
fn name(run: &Run) -> String {
    if run.label.is_empty() {
        run.source.clone()
    } else {
        format!("{} ({})", run.label, run.source)
    }
}

/// The page of some runs.
pub fn html(title: &str, runs: &[Run]) -> String {
    let mut page = Page { out: String::new(), figures: 0 };
    page.begin(title, runs);
    page.summary(runs);
    page.between(runs);
    for (number, run) in runs.iter().enumerate() {
        page.run(number + 1, run);
    }
    page.out.push_str("</main>\n</body>\n</html>\n");
    page.out
}

struct Page {
    out: String,
    /// Figures so far, which have numbers.
    figures: usize,
}

impl Page {
    fn begin(&mut self, title: &str, runs: &[Run]) {
        let title = escape(title);
        put!(
            self.out,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <meta name=\"generator\" content=\"sateen-bench {}\">\n\
             <link rel=\"icon\" href=\"data:,\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n\
             </head>\n<body>\n<header>\n<h1>{title}</h1>\n",
            env!("CARGO_PKG_VERSION")
        );
        let count = if runs.len() == 1 { "One run".into() } else { format!("{} runs", runs.len()) };
        putln!(self.out, "<p class=\"soft\">{count}.</p>\n</header>");
        if runs.len() > 1 {
            self.out.push_str("<nav aria-label=\"Runs\">\n<ul>\n");
            for (number, run) in runs.iter().enumerate() {
                let (number, name) = (number + 1, escape(&name(run)));
                putln!(self.out, "<li><a href=\"#run-{number}\">{name}</a></li>");
            }
            self.out.push_str("</ul>\n</nav>\n");
        }
        self.out.push_str("<main>\n");
    }

    /// Which warnings there are, before any number.
    fn summary(&mut self, runs: &[Run]) {
        let mut codes: BTreeMap<&str, Vec<&Run>> = BTreeMap::new();
        for run in runs {
            for one in &run.warnings {
                let of = codes.entry(&one.code).or_default();
                if of.last().is_none_or(|last| !std::ptr::eq(*last, run)) {
                    of.push(run);
                }
            }
        }
        if codes.is_empty() {
            return;
        }
        self.out.push_str(
            "<section class=\"warnings\" aria-label=\"Warnings\">\n<p><strong>These numbers come \
             with warnings</strong>, which stand at each run:</p>\n<ul>\n",
        );
        for (code, of) in codes {
            let what = meaning(code);
            let code = if code.is_empty() { "others" } else { code };
            let count = if of.len() == 1 { "1 run".into() } else { format!("{} runs", of.len()) };
            putln!(
                self.out,
                "<li><span class=\"code\">{}</span> in {count}{what}</li>",
                escape(code)
            );
        }
        self.out.push_str("</ul>\n</section>\n");
    }

    /// What holds runs against each other.
    fn between(&mut self, runs: &[Run]) {
        let (figures, tables) = (figures::between(runs), tables::between(runs));
        if !figures.is_empty() {
            self.out.push_str("<section id=\"figures\">\n<h2>Figures</h2>\n");
            self.figures(&figures);
            self.out.push_str("</section>\n");
        }
        if !tables.is_empty() {
            self.out.push_str("<section id=\"tables\">\n<h2>Tables</h2>\n");
            for table in &tables {
                self.table(table);
            }
            self.out.push_str("</section>\n");
        }
    }

    fn run(&mut self, number: usize, run: &Run) {
        let name = escape(&name(run));
        putln!(
            self.out,
            "<section id=\"run-{number}\">\n<h2>{name} <span class=\"soft\">{}</span></h2>\n<dl>",
            escape(run.program)
        );
        for (what, value) in run.facts.iter().filter(|fact| !fact.1.is_empty()) {
            putln!(self.out, "<dt>{}</dt><dd>{}</dd>", escape(what), escape(value));
        }
        self.out.push_str("</dl>\n");
        self.warnings(&run.warnings);
        self.table(&tables::results(run));
        self.out.push_str(
            "<p class=\"note\">A rate is all that was done over the time from the first start to \
             the last end. * The sum of ranks adds up each rank's own rate over its own time: it \
             is no rate of anything, and the further it lies above the best rate, the less the \
             ranks worked together.</p>\n",
        );
        self.figures(&figures::of_run(run));
        self.out.push_str("</section>\n");
    }

    fn warnings(&mut self, warnings: &[Warning]) {
        if warnings.is_empty() {
            return;
        }
        self.out.push_str("<div class=\"warnings\">\n<ul>\n");
        let mut said: Vec<(&Warning, u32)> = Vec::new();
        for one in warnings {
            match said.iter_mut().find(|old| old.0 == one) {
                Some(old) => old.1 += 1,
                None => said.push((one, 1)),
            }
        }
        for (one, count) in said {
            let code = if one.code.is_empty() { "note" } else { &one.code };
            let phase =
                if one.phase.is_empty() { String::new() } else { format!("{}: ", one.phase) };
            let times = if count > 1 { format!(" ({count} times)") } else { String::new() };
            putln!(
                self.out,
                "<li><span class=\"code\">{}</span> {}{}{times}</li>",
                escape(code),
                escape(&phase),
                escape(&one.message)
            );
        }
        self.out.push_str("</ul>\n</div>\n");
    }

    fn figures(&mut self, figures: &[Figure]) {
        if figures.is_empty() {
            return;
        }
        self.out.push_str("<div class=\"figures\">\n");
        for figure in figures {
            self.figures += 1;
            let class = if matches!(figure, Figure::Bars(_)) { " class=\"bars\"" } else { "" };
            putln!(
                self.out,
                "<figure{class}>\n<h4>{}. {}</h4>\n{}<figcaption>{}</figcaption>\n</figure>",
                self.figures,
                escape(figure.title()),
                figure.svg(&format!("figure-{}", self.figures)),
                escape(figure.caption())
            );
        }
        self.out.push_str("</div>\n");
    }

    fn table(&mut self, table: &Table) {
        let title = escape(&table.title);
        putln!(
            self.out,
            "<div class=\"wide\" role=\"region\" aria-label=\"{title}\" tabindex=\"0\">\n<table>\n\
             <caption>{title}</caption>\n<thead><tr>"
        );
        let class = |at: usize| if at < table.words { "" } else { " class=\"n\"" };
        for (at, head) in table.head.iter().enumerate() {
            put!(self.out, "<th scope=\"col\"{}>{}</th>", class(at), escape(head));
        }
        self.out.push_str("</tr></thead>\n<tbody>\n");
        for row in &table.rows {
            self.out.push_str("<tr>");
            for (at, cell) in row.iter().enumerate() {
                let cell = escape(cell);
                match at {
                    0 => put!(self.out, "<th scope=\"row\">{cell}</th>"),
                    _ => put!(self.out, "<td{}>{cell}</td>", class(at)),
                }
            }
            self.out.push_str("</tr>\n");
        }
        self.out.push_str("</tbody>\n</table>\n</div>\n");
    }
}

/// What a code is about.
fn meaning(code: &str) -> &'static str {
    match code {
        "W-CACHE" => ": memory answered, or may have",
        "W-FAST" => ": a node read faster than its devices or its network can",
        "W-UNEQUAL" => ": nodes or ranks moved different amounts",
        "W-SKEW" => ": ranks did not start together",
        "W-STRAGGLER" => ": ranks were far slower than the others",
        "W-SUM" => ": the ranks' own rates add up to more than was reached",
        "W-REPEATS" => ": too few repetitions",
        "W-SHORT" => ": short phases",
        "W-FULL" => ": a nearly full file system",
        "W-NODE" => ": a node that is busy, short of memory, slow or has errors",
        "W-LEFTOVERS" => ": files of earlier runs",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::tests::a_run;

    #[test]
    fn a_page_shows_every_warning_and_every_figure() {
        let mut runs =
            [a_run("a", &["write", "read"], 1, 4096), a_run("a", &["write", "read"], 4, 4096)];
        for run in &mut runs {
            run.warnings = vec![Warning {
                code: "W-SHORT".into(),
                phase: "write".into(),
                message: format!("only of {}", run.source),
            }];
        }
        let html = html("Two <runs>", &runs);
        assert!(html.contains("<title>Two &lt;runs&gt;</title>"));
        assert!(html.contains("W-SHORT</span> in 2 runs: short phases"));
        assert!(html.contains("write: only of a1.json") && html.contains("only of a4.json"));
        // One over processes, and each run's ranks (of the one that has several) and course.
        assert_eq!(html.matches("<figure>").count(), 4);
        assert_eq!(html.matches("<figure").count(), html.matches("</figure>").count());
        for number in 1..=4 {
            assert_eq!(html.matches(&format!("id=\"figure-{number}-t\"")).count(), 1);
        }
    }

    #[test]
    fn nothing_of_a_run_is_markup_and_nothing_is_fetched() {
        let evil = "\"><script>alert(1)</script><img src=x onerror=y>'";
        let mut run = a_run(evil, &[evil, "b"], 3, 4096);
        run.source = evil.into();
        run.facts = vec![("Path", evil.into())];
        run.outcomes[0].access = evil.into();
        run.warnings =
            vec![Warning { code: evil.into(), phase: evil.into(), message: evil.into() }];
        let other = Run { outcomes: a_run("", &[evil], 1, 4096).outcomes, ..run.clone() };
        let html = html(evil, &[run, other]);
        assert!(!html.contains("<script") && !html.contains("<img"), "escaped");
        for fetched in ["http://", "https://", "url(", "@import"] {
            assert!(!html.contains(fetched), "{fetched}");
        }
        assert_eq!(html.matches("<link").count(), 1);
        assert!(html.contains("href=\"data:,\""));
    }
}

//! Values beside each other as bars, where there is nothing that they could run along.

use super::axis::{Axis, Scale};
use super::{COLOURS, WIDTH, begin};
use crate::markup::{escape, number, putln};

const ROW: f64 = 22.0;
const GAP: f64 = 12.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 92.0;
/// Longest name that has room beside its bar.
const NAME_CHARS_MAX: usize = 28;
/// Height of a line of words, where a name is longer and stands above its bar.
const LINE: f64 = 14.0;
/// Longest name there.
const LINE_CHARS_MAX: usize = 88;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// Its name.
    pub name: String,
    /// Bars of one group stand together.
    pub group: usize,
    /// Its colour.
    pub colour: usize,
    /// The value.
    pub value: f64,
    /// The smallest and the largest of the repetitions.
    pub range: Option<(f64, f64)>,
}

/// A figure with bars.
#[derive(Debug, Clone, PartialEq)]
pub struct Bars {
    /// What it shows, in a few words.
    pub title: String,
    /// The same in a sentence or two.
    pub caption: String,
    /// The unit.
    pub unit: String,
    /// What is drawn.
    pub bars: Vec<Bar>,
}

fn cut(name: &str) -> String {
    if name.chars().count() <= LINE_CHARS_MAX {
        return name.to_owned();
    }
    let short: String = name.chars().take(LINE_CHARS_MAX - 1).collect();
    short + "…"
}

impl Bars {
    /// As SVG.
    pub fn svg(&self, id: &str) -> String {
        // What tells bars apart may stand at the end of their names.
        let above = self.bars.iter().any(|bar| bar.name.chars().count() > NAME_CHARS_MAX);
        let (line, left) = if above { (LINE, 8.0) } else { (0.0, LEFT) };
        let mut top = 6.0;
        let mut tops = Vec::with_capacity(self.bars.len());
        for (at, bar) in self.bars.iter().enumerate() {
            let before = at.checked_sub(1).and_then(|at| self.bars.get(at));
            if before.is_some_and(|before| before.group != bar.group) {
                top += GAP;
            }
            tops.push(top);
            top += ROW + line;
        }
        let mut out = begin(id, &self.title, &self.caption, top + 6.0);
        let values: Vec<f64> = self
            .bars
            .iter()
            .flat_map(|bar| [bar.value, bar.range.map_or(0.0, |range| range.1)])
            .collect();
        let axis = Axis::new("", Scale::Linear).over(&values, (left, WIDTH - RIGHT), true);
        for (bar, top) in self.bars.iter().zip(tops) {
            let (start, end) = (axis.place(0.0), axis.place(bar.value));
            let middle = top + line + ROW / 2.0;
            let (name_x, name_y, anchor) = match above {
                true => (left, top + LINE - 2.0, "start"),
                false => (left - 8.0, middle + 4.0, "end"),
            };
            let name = escape(&bar.name);
            let value = format!("{} {}", number(bar.value), escape(&self.unit));
            putln!(
                out,
                "<g class=\"c{}\"><text x=\"{name_x:.1}\" y=\"{name_y:.1}\" \
                 text-anchor=\"{anchor}\">{}<title>{name}</title></text>\
                 <rect x=\"{start:.1}\" y=\"{:.1}\" width=\"{:.1}\" \
                 height=\"{:.1}\"><title>{name}: {value}</title></rect>",
                bar.colour % COLOURS,
                escape(&cut(&bar.name)),
                top + line + 3.0,
                (end - start).max(1.0),
                ROW - 6.0
            );
            let mut text_at = end;
            if let Some((low, high)) = bar.range.filter(|(low, high)| low < high) {
                let (low, high) = (axis.place(low), axis.place(high));
                text_at = text_at.max(high);
                putln!(
                    out,
                    "<line class=\"range\" x1=\"{low:.1}\" x2=\"{high:.1}\" y1=\"{middle:.1}\" \
                     y2=\"{middle:.1}\"/>"
                );
            }
            putln!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
                text_at + 6.0,
                middle + 4.0,
                escape(&number(bar.value))
            );
        }
        out.push_str("</svg>\n");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_values() {
        let bar = |value| Bar { name: "<n>".into(), group: 0, colour: 0, value, range: None };
        let bars = Bars {
            title: "t".into(),
            caption: "c".into(),
            unit: "MiB/s".into(),
            bars: vec![bar(10.0), bar(20.0)],
        };
        let svg = bars.svg("f");
        let widths: Vec<f64> = svg
            .split("width=\"")
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap().parse().unwrap())
            .collect();
        assert!((widths[1] / widths[0] - 2.0).abs() < 0.01, "{widths:?}");
        assert!(svg.contains("&lt;n&gt;: 20.00 MiB/s") && !svg.contains("<n>"), "{svg}");
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!(cut("short"), "short");
        assert_eq!(cut(&"ä".repeat(150)).chars().count(), LINE_CHARS_MAX);
    }

    #[test]
    fn a_name_that_is_too_long_for_beside_its_bar_stands_above_it() {
        let svg = |names: [&str; 2]| {
            let bar = |name: &str| Bar {
                name: name.into(),
                group: 0,
                colour: 0,
                value: 1.0,
                range: None,
            };
            let (title, caption, unit) = ("t".into(), "c".into(), "u".into());
            Bars { title, caption, unit, bars: names.map(bar).to_vec() }.svg("f")
        };
        let beside = svg(["write", "read"]);
        assert!(beside.contains("text-anchor=\"end\">write<") && !beside.contains("start"));
        let long = "write, file-per-process, POSIX, O_DIRECT";
        let above = svg([long, "read"]);
        assert!(above.contains(&format!("text-anchor=\"start\">{long}<")), "{above}");
        assert!(above.contains("text-anchor=\"start\">read<"), "all of a figure alike: {above}");
    }
}

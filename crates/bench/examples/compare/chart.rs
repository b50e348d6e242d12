//! A figure of all rows: what each file system reaches, as a multiple of what ext4 does.

use std::fmt::Write as _;

use crate::numbers::Numbers;
use crate::rows;
use crate::systems::{KNOWN, Known};

const LEFT: f64 = 250.0;
const RIGHT: f64 = 20.0;
const WIDTH: f64 = 860.0;
const LINE: f64 = 20.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 40.0;
/// In the order of `KNOWN`; told apart without colours by their shapes, too.
const COLOURS: [&str; 9] = [
    "#444444", "#999999", "#117733", "#88aa44", "#cc3311", "#ee8822", "#aa3377", "#0055aa",
    "#66aadd",
];

/// A row of the figure: its name, and for each file system a multiple of ext4.
type Line = (String, Vec<(usize, f64)>);

/// The figure, if ext4 and another were measured.
pub(crate) fn svg(numbers: &Numbers) -> Option<String> {
    let lines = lines(numbers);
    let all = || lines.iter().flat_map(|(_, marks)| marks.iter().map(|(_, times)| *times));
    let low = all().reduce(f64::min)?.log10().floor().min(-1.0);
    let high = all().reduce(f64::max)?.log10().ceil().max(0.0);
    let x = |times: f64| LEFT + (times.log10() - low) / (high - low) * (WIDTH - LEFT - RIGHT);
    let base = TOP + LINE * lines.len() as f64;
    let height = base + BOTTOM;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <title>Rates as multiples of ext4's</title>\n\
         <desc>A line for each row, a mark for each file system; to the right is faster.</desc>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    for decade in low as i32..=high as i32 {
        let at = x(10_f64.powi(decade));
        let colour = if decade == 0 { "#444444" } else { "#dddddd" };
        let text = if decade >= 0 {
            10_f64.powi(decade).to_string()
        } else {
            format!("1/{}", 10_f64.powi(-decade))
        };
        let _ = writeln!(
            out,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{base}\" stroke=\"{colour}\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>",
            base + 16.0
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">times ext4, {} process{} (faster to the right)</text>",
        f64::midpoint(LEFT, WIDTH - RIGHT),
        base + 33.0,
        fewest(numbers),
        if fewest(numbers) == 1 { "" } else { "es" }
    );
    legend(&mut out, numbers);
    for (at, (name, marks)) in lines.iter().enumerate() {
        let y = TOP + LINE * (at as f64 + 0.5);
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y}\" y2=\"{y}\" stroke=\"#eeeeee\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
            y + 4.0
        );
        for (system, times) in marks {
            let title = KNOWN.get(*system).map_or("", |known| known.title);
            mark(&mut out, *system, (x(*times), y), &format!("{title}: {times:.3} × ext4"));
        }
    }
    out.push_str("</svg>\n");
    Some(out)
}

/// The figure is of so many processes.
fn fewest(numbers: &Numbers) -> u32 {
    numbers.processes().first().copied().unwrap_or(1)
}

fn lines(numbers: &Numbers) -> Vec<Line> {
    let processes = fewest(numbers);
    let rate = |row: &str, system: &str| numbers.cell(row, processes, system)?.median();
    let mut lines = Vec::new();
    for row in rows::all_rows() {
        let Some(ext4) = rate(&row.replace("seq4.", "seq1."), "ext4") else { continue };
        let mark = |(at, known): (usize, &Known)| Some((at, rate(&row, known.name)? / ext4));
        let others = KNOWN.iter().enumerate().filter(|(_, known)| known.name != "ext4");
        let marks: Vec<_> = others.filter_map(mark).collect();
        if !marks.is_empty() {
            lines.push((rows::title(&row), marks));
        }
    }
    lines
}

fn legend(out: &mut String, numbers: &Numbers) {
    let shown =
        KNOWN.iter().enumerate().filter(|(_, one)| one.name != "ext4" && numbers.has(one.name));
    for (place, (at, known)) in shown.enumerate() {
        let (x, y) = (24.0 + (place % 4) as f64 * 200.0, 20.0 + (place / 4) as f64 * 20.0);
        mark(out, at, (x, y), known.title);
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            x + 10.0,
            y + 4.0,
            known.title
        );
    }
}

fn mark(out: &mut String, system: usize, (x, y): (f64, f64), title: &str) {
    let colour = COLOURS.get(system).copied().unwrap_or("#000000");
    let polygon = |points: &[(f64, f64)]| {
        let points = points.iter().map(|(dx, dy)| format!("{:.1},{:.1}", x + dx, y + dy));
        format!("polygon points=\"{}\"", points.collect::<Vec<_>>().join(" "))
    };
    let shape = match system {
        1 => format!("rect x=\"{:.1}\" y=\"{:.1}\" width=\"7\" height=\"7\"", x - 3.5, y - 3.5),
        2 => polygon(&[(0.0, -5.0), (5.0, 4.0), (-5.0, 4.0)]),
        3 => polygon(&[(0.0, 5.0), (5.0, -4.0), (-5.0, -4.0)]),
        5 => polygon(&[(0.0, -5.5), (5.5, 0.0), (0.0, 5.5), (-5.5, 0.0)]),
        6 => polygon(&[(-5.0, -5.0), (0.0, -1.0), (5.0, -5.0), (0.0, 5.5)]),
        7 => polygon(&[(-5.0, -2.0), (5.0, -2.0), (5.0, 2.0), (-5.0, 2.0)]),
        8 => polygon(&[(-2.0, -5.0), (2.0, -5.0), (2.0, 5.0), (-2.0, 5.0)]),
        _ => format!("circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\""),
    };
    let name = shape.split(' ').next().unwrap_or_default();
    let _ = writeln!(out, "<{shape} fill=\"{colour}\"><title>{title}</title></{name}>");
}

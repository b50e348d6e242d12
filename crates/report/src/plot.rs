//! A figure as SVG: axes, lines with marks and the spread of their values, bars. Colours are
//! classes, which the page's style gives values for light, dark and paper; series differ in
//! their marks as well, for those who do not see colours. Nothing in it is executed or fetched.

mod axis;
mod bars;

pub use axis::{Axis, Scale};
pub use bars::{Bar, Bars};

use crate::markup::{escape, put, putln};

/// Width of a figure in its own units.
pub(crate) const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 48.0;
/// How far series stand aside of each other.
const ASIDE: f64 = 2.5;
/// Colours that the style has.
pub(crate) const COLOURS: usize = 8;

/// A value with the range of its repetitions.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Where.
    pub x: f64,
    /// The value.
    pub y: f64,
    /// The smallest and the largest of the repetitions.
    pub range: Option<(f64, f64)>,
    /// What is shown of it when pointed at.
    pub title: String,
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// A line with a mark at each value.
    Marks,
    /// A line alone.
    Line,
    /// Marks alone.
    Dots,
    /// Each value holds from the one before.
    Steps,
}

/// Values that belong together.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name, for the legend; one without has no place there.
    pub name: String,
    /// Colour and mark.
    pub colour: usize,
    /// Whether it stays behind the others.
    pub faint: bool,
    /// How it is drawn.
    pub style: Style,
    /// Its values.
    pub points: Vec<Point>,
}

/// A figure with lines.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// What it shows, in a few words.
    pub title: String,
    /// The same in a sentence or two, for those who do not see it, and below it.
    pub caption: String,
    /// To the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// What is drawn.
    pub series: Vec<Series>,
}

/// Beginning of a figure; `id` is unique in the page.
pub(crate) fn begin(id: &str, title: &str, caption: &str, height: f64) -> String {
    format!(
        "<svg viewBox=\"0 0 {WIDTH:.0} {height:.0}\" role=\"img\" \
         aria-labelledby=\"{id}-t {id}-d\"><title id=\"{id}-t\">{}</title><desc id=\"{id}-d\">{}\
         </desc>\n",
        escape(title),
        escape(caption)
    )
}

/// A mark; a different one for each colour.
pub(crate) fn mark(colour: usize, x: f64, y: f64) -> String {
    let polygon = |points: &[(f64, f64)]| {
        let points = points.iter().map(|(dx, dy)| format!("{:.1},{:.1}", x + dx, y + dy));
        format!("<polygon points=\"{}\"", points.collect::<Vec<_>>().join(" "))
    };
    match colour % COLOURS {
        0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\""),
        1 => {
            format!("<rect x=\"{:.1}\" y=\"{:.1}\" width=\"7.4\" height=\"7.4\"", x - 3.7, y - 3.7)
        }
        2 => polygon(&[(0.0, -4.8), (4.6, 3.6), (-4.6, 3.6)]),
        3 => polygon(&[(0.0, -5.2), (5.2, 0.0), (0.0, 5.2), (-5.2, 0.0)]),
        4 => polygon(&[(0.0, 4.8), (4.6, -3.6), (-4.6, -3.6)]),
        5 => polygon(&[(-5.0, -1.6), (5.0, -1.6), (5.0, 1.6), (-5.0, 1.6)]),
        6 => polygon(&[(-1.6, -5.0), (1.6, -5.0), (1.6, 5.0), (-1.6, 5.0)]),
        _ => polygon(&[(-4.4, -4.4), (4.4, -4.4), (0.0, 0.0), (4.4, 4.4), (-4.4, 4.4), (0.0, 0.0)]),
    }
}

impl Chart {
    /// As SVG with its legend.
    pub fn svg(&self, id: &str) -> String {
        let mut out = begin(id, &self.title, &self.caption, HEIGHT);
        let values = |of: fn(&Point) -> f64| {
            self.series.iter().flat_map(move |one| one.points.iter().map(of)).collect::<Vec<f64>>()
        };
        let (xs, mut ys) = (values(|point| point.x), values(|point| point.y));
        for range in self.series.iter().flat_map(|one| &one.points).filter_map(|one| one.range) {
            ys.extend([range.0, range.1]);
        }
        let x = self.x.over(&xs, (LEFT, WIDTH - RIGHT), false);
        let y = self.y.over(&ys, (HEIGHT - BOTTOM, TOP), true);
        for (at, text) in &y.ticks {
            putln!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                at + 4.0,
                escape(text)
            );
        }
        for (at, text) in &x.ticks {
            let base = HEIGHT - BOTTOM;
            putln!(
                out,
                "<line class=\"axis\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{base}\" y2=\"{:.1}\"/>\
                 <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                base + 5.0,
                base + 18.0,
                escape(text)
            );
        }
        self.labels(&mut out);
        let middle = self.series.len().saturating_sub(1) as f64 / 2.0;
        for (at, series) in self.series.iter().enumerate() {
            // A little aside, so that ranges do not cover each other.
            let marked = series.style == Style::Marks;
            let aside = if marked { (at as f64 - middle) * ASIDE } else { 0.0 };
            draw(&mut out, series, &|value| x.place(value) + aside, &|value| y.place(value));
        }
        out.push_str("</svg>\n");
        out.push_str(&legend(&self.series));
        out
    }

    fn labels(&self, out: &mut String) {
        let (base, middle) = (HEIGHT - BOTTOM, f64::midpoint(LEFT, WIDTH - RIGHT));
        let up = f64::midpoint(TOP, base);
        putln!(
            out,
            "<path class=\"axis\" d=\"M{LEFT} {TOP}V{base}H{:.1}\" fill=\"none\"/>\
             <text class=\"label\" x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text class=\"label\" x=\"14\" y=\"{up:.1}\" text-anchor=\"middle\" \
             transform=\"rotate(-90 14 {up:.1})\">{}</text>",
            WIDTH - RIGHT,
            HEIGHT - 8.0,
            escape(&self.x.label),
            escape(&self.y.label)
        );
    }
}

fn draw(out: &mut String, series: &Series, x: &dyn Fn(f64) -> f64, y: &dyn Fn(f64) -> f64) {
    let faint = if series.faint { " faint" } else { "" };
    putln!(out, "<g class=\"c{}{faint}\">", series.colour % COLOURS);
    let mut path = String::new();
    for (at, point) in series.points.iter().enumerate() {
        let (px, py) = (x(point.x), y(point.y));
        match (at, series.style) {
            (0, Style::Steps) => put!(path, "M{:.1} {py:.1}H{px:.1}", x(0.0)),
            (0, _) => put!(path, "M{px:.1} {py:.1}"),
            (_, Style::Steps) => put!(path, "V{py:.1}H{px:.1}"),
            _ => put!(path, "L{px:.1} {py:.1}"),
        }
    }
    if series.style != Style::Dots && !path.is_empty() {
        putln!(out, "<path class=\"line\" d=\"{path}\"/>");
    }
    if matches!(series.style, Style::Marks | Style::Dots) {
        for point in &series.points {
            let (px, py) = (x(point.x), y(point.y));
            if let Some((low, high)) = point.range.filter(|(low, high)| low < high) {
                putln!(
                    out,
                    "<line class=\"range\" x1=\"{px:.1}\" x2=\"{px:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>",
                    y(low),
                    y(high)
                );
            }
            let mark = mark(series.colour, px, py);
            let name =
                mark.split(' ').next().unwrap_or_default().trim_start_matches('<').to_owned();
            putln!(out, "{mark}><title>{}</title></{name}>", escape(&point.title));
        }
    }
    out.push_str("</g>\n");
}

/// Names of colours and marks, below a figure.
fn legend(series: &[Series]) -> String {
    let named: Vec<&Series> = series.iter().filter(|one| !one.name.is_empty()).collect();
    if named.len() < 2 {
        return String::new();
    }
    let mut out = String::from("<ul class=\"legend\">");
    for one in named {
        let colour = one.colour % COLOURS;
        put!(
            out,
            "<li><svg viewBox=\"0 0 24 12\" width=\"24\" height=\"12\" aria-hidden=\"true\">\
             <g class=\"c{colour}\"><path class=\"line\" d=\"M0 6H24\"/>{}/></g></svg>{}</li>",
            mark(colour, 12.0, 6.0),
            escape(&one.name)
        );
    }
    out.push_str("</ul>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(name: &str) -> Chart {
        let point = |x: f64, y: f64| Point { x, y, range: Some((y / 2.0, y)), title: "<t>".into() };
        let series = |colour, name: &str| Series {
            name: name.to_owned(),
            colour,
            faint: false,
            style: Style::Marks,
            points: vec![point(1.0, 10.0), point(2.0, 20.0)],
        };
        Chart {
            title: "A & B".into(),
            caption: "c".into(),
            x: Axis::new("x", Scale::Linear),
            y: Axis::new("y", Scale::Linear),
            series: vec![series(0, name), series(1, "b")],
        }
    }

    #[test]
    fn a_figure_has_a_name_a_legend_and_no_markup_of_others() {
        let svg = chart("<script>").svg("f1");
        assert!(svg.contains("aria-labelledby=\"f1-t f1-d\""), "{svg}");
        assert!(svg.contains("<title id=\"f1-t\">A &amp; B</title>"), "{svg}");
        assert!(svg.contains("&lt;script&gt;</li>") && !svg.contains("<script"), "{svg}");
        assert_eq!(svg.matches("<title>&lt;t&gt;</title>").count(), 4);
        assert_eq!(svg.matches("<g ").count(), svg.matches("</g>").count());
        assert_eq!(svg.matches("class=\"range\"").count(), 4);
    }

    #[test]
    fn what_is_drawn_lies_inside() {
        let mut odd = chart("a");
        odd.series[0].points[0].x = 1e18;
        odd.series[0].points[0].y = 0.0;
        odd.series[1].points.clear();
        for scale in [Scale::Linear, Scale::Log] {
            (odd.x.scale, odd.y.scale) = (scale, scale);
            let svg = odd.svg("f");
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            for circle in svg.split("<circle cx=\"").skip(1) {
                let x: f64 = circle.split('"').next().unwrap().parse().unwrap();
                assert!((0.0..=WIDTH).contains(&x), "{x}");
            }
        }
    }
}

//! Horizontal bar charts as SVG: a title, one bar a target, the figure at its end.
//!
//! Own code because a chart is forty lines of text and a plotting crate is forty crates.

use std::fmt::Write;

/// One bar.
#[derive(Debug, Clone)]
pub(crate) struct Bar {
    pub(crate) label: String,
    pub(crate) value: f64,
    /// Drawn in the accent colour.
    pub(crate) ours: bool,
}

const WIDTH: f64 = 640.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 90.0;
const ROW: f64 = 26.0;
const TOP: f64 = 46.0;

/// A chart of `bars`, with a dashed line at `mark` (the best peer) when there is one.
pub(crate) fn chart(title: &str, note: &str, bars: &[Bar], mark: Option<f64>) -> String {
    let usable = |v: f64| if v.is_finite() { v.max(0.0) } else { 0.0 };
    let largest = bars.iter().map(|b| usable(b.value)).chain(mark.map(usable)).fold(0.0, f64::max);
    let scale = if largest > 0.0 { (WIDTH - LEFT - RIGHT) / largest } else { 0.0 };
    let height = TOP + ROW * bars.iter().map(|_| 1.0).sum::<f64>() + 12.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\" role=\"img\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"12\" y=\"20\" font-weight=\"600\" fill=\"#1a1a1a\">{}</text>\n\
         <text x=\"12\" y=\"37\" font-size=\"11\" fill=\"#666666\">{}</text>\n",
        escape(title),
        escape(note)
    );
    let mut y = TOP;
    for bar in bars {
        let value = usable(bar.value);
        let colour = if bar.ours { "#0b7a75" } else { "#b8c4c2" };
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\" fill=\"#1a1a1a\">{}</text>\
             <rect x=\"{LEFT}\" y=\"{:.0}\" width=\"{:.1}\" height=\"16\" rx=\"2\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"{:.0}\" fill=\"#1a1a1a\">{}</text>",
            LEFT - 8.0,
            y + 16.0,
            escape(&bar.label),
            y + 3.0,
            value * scale,
            LEFT + value * scale + 6.0,
            y + 16.0,
            short(bar.value),
        );
        y += ROW;
    }
    if let Some(mark) = mark.map(usable) {
        let x = LEFT + mark * scale;
        let _ = writeln!(
            out,
            "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{:.0}\" stroke=\"#c2410c\" \
             stroke-width=\"1\" stroke-dasharray=\"4 3\"/>",
            height - 10.0
        );
    }
    out += "</svg>\n";
    out
}

/// Three figures that matter, no more.
fn short(value: f64) -> String {
    match value.abs() {
        v if !v.is_finite() => "–".to_owned(),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(label: &str, value: f64) -> Bar {
        Bar { label: label.into(), value, ours: label == "baton" }
    }

    #[test]
    fn every_target_has_a_bar_in_proportion() {
        let svg = chart("t", "n", &[bar("baton", 1.0), bar("other", 2.0)], Some(2.0));
        assert!(svg.contains("width=\"400.0\""), "{svg}");
        assert!(svg.contains("width=\"200.0\""), "{svg}");
        assert_eq!(svg.matches("#0b7a75").count(), 1);
        assert_eq!(svg.matches("<line").count(), 1);
    }

    #[test]
    fn names_cannot_break_the_markup() {
        let svg = chart("a < b & \"c\"", "", &[bar("<x>", 1.0)], None);
        assert!(svg.contains("a &lt; b &amp; &quot;c&quot;"));
        assert!(!svg.contains("<x>"));
    }

    #[test]
    fn empty_and_broken_figures_still_make_a_chart() {
        for value in [0.0, f64::NAN, f64::INFINITY, -1.0] {
            let svg = chart("t", "", &[bar("a", value)], Some(value));
            assert!(svg.ends_with("</svg>\n"));
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}

//! Charts as inline SVG. The page's style has the colours and fonts.

use std::fmt::Write;

/// Formats a number on an axis or next to a bar.
pub(super) type Format = fn(f64) -> String;

/// Width of a plot in units of the SVG. A page scales it and shows two in a row.
const PLOT: f64 = 500.0;

/// Width of horizontal bars, which have the whole width of a page.
const WIDE: f64 = 960.0;

/// The greatest width of a character.
const NAME_CHARACTER: f64 = 8.0;

/// The edges of a plot in its chart.
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

const FRAME: Frame = Frame {
    left: 60.0,
    right: PLOT - 10.0,
    top: 24.0,
    bottom: 174.0,
};

/// The vertical axis of a plot.
struct Axis {
    ticks: Vec<f64>,
    ceiling: f64,
}

impl Axis {
    fn up_to(most: f64) -> Axis {
        let ticks = ticks(most, 4);
        let ceiling = ticks.last().copied().unwrap_or(1.0).max(most).max(1e-9);
        Axis { ticks, ceiling }
    }

    fn y(&self, value: f64) -> f64 {
        FRAME.bottom - (FRAME.bottom - FRAME.top) * value / self.ceiling
    }

    /// Draws lines and labels.
    fn draw(&self, svg: &mut String, format: Format) {
        for &tick in &self.ticks {
            let y = self.y(tick);
            line(svg, "grid", (FRAME.left, y), (FRAME.right, y));
            let label = format(tick);
            text(svg, "end", (FRAME.left - 8.0, y + 4.0), "", &label);
        }
    }
}

/// A value in each interval, given by the end of the interval in seconds.
pub(super) type Points = Vec<(f64, f64)>;

/// A rate over time. Each point is the end of an interval, in seconds, and the rate in it. `marks`
/// are named times, such as the start of a phase.
pub(super) fn steps(points: &[(f64, f64)], marks: &[(f64, String)], format: Format) -> String {
    curves(&[("", points.to_vec())], marks, format)
}

/// Values over time with the same axes. The first is drawn with its area. A legend has the names
/// that are not empty.
pub(super) fn curves(series: &[(&str, Points)], marks: &[(f64, String)], format: Format) -> String {
    let points = || series.iter().flat_map(|(_, points)| points);
    let most = points().map(|p| p.1).fold(0.0, f64::max);
    let end = points().map(|p| p.0).fold(0.0, f64::max);
    let end = if end > 0.0 { end } else { 1.0 };
    let axis = Axis::up_to(most);
    let x = |at: f64| FRAME.left + (FRAME.right - FRAME.left) * at / end;
    let mut svg = open(PLOT, FRAME.bottom + 26.0);
    axis.draw(&mut svg, format);
    for tick in ticks(end, 6).into_iter().filter(|tick| *tick <= end) {
        let label = format!("{} s", plain(tick));
        let at = (x(tick), FRAME.bottom + 18.0);
        text(&mut svg, "middle", at, "", &label);
    }
    for (i, (_, points)) in series.iter().enumerate() {
        let path = path(points, &axis, x);
        if path.is_empty() {
            continue;
        }
        let (left, right, floor) = (x(0.0), x(end), FRAME.bottom);
        let class = match i {
            0 => {
                let _ = write!(
                    svg,
                    r#"<path class="area" d="{path}L{right:.1} {floor:.1}L{left:.1} {floor:.1}Z"/>"#
                );
                "curve"
            }
            _ => "curve other",
        };
        let _ = write!(svg, r#"<path class="{class}" d="{path}"/>"#);
    }
    let mut free = FRAME.left;
    for (at, name) in marks.iter().filter(|mark| mark.0 <= end) {
        let (at, top) = (x(*at), FRAME.top - 10.0);
        line(&mut svg, "mark", (at, top + 2.0), (at, FRAME.bottom));
        // The name is right of its mark if there is room, and left of it at the right edge.
        let width = NAME_CHARACTER * name.len() as f64;
        if at < free {
            continue;
        }
        let (anchor, shift) = match at + width > FRAME.right {
            true if at - width < free => continue,
            true => ("end", -4.0),
            false => ("start", 4.0),
        };
        text(&mut svg, anchor, (at + shift, top), "", name);
        free = at + shift + width;
    }
    legend(&mut svg, series);
    close(svg)
}

/// A horizontal line for each interval. Vertical lines connect them.
fn path(points: &[(f64, f64)], axis: &Axis, x: impl Fn(f64) -> f64) -> String {
    let mut path = String::new();
    let mut from = 0.0;
    for (i, &(at, value)) in points.iter().enumerate() {
        let command = if i == 0 { 'M' } else { 'L' };
        let (left, right, y) = (x(from), x(at), axis.y(value));
        let _ = write!(path, "{command}{left:.1} {y:.1}L{right:.1} {y:.1}");
        from = at;
    }
    path
}

/// The names of the curves, in the upper right corner.
fn legend(svg: &mut String, series: &[(&str, Points)]) {
    let names = series.iter().filter(|(name, _)| !name.is_empty());
    for (i, (name, _)) in names.enumerate() {
        let at = (FRAME.right - 4.0, FRAME.top + 14.0 + 16.0 * i as f64);
        let class = if i == 0 { "first" } else { "other" };
        text(svg, "end", at, class, name);
    }
}

/// The number in each class as vertical bars.
pub(super) fn histogram(classes: &[(String, f64)], format: Format) -> String {
    let most = classes.iter().map(|c| c.1).fold(0.0, f64::max);
    let axis = Axis::up_to(most);
    let slot = (FRAME.right - FRAME.left) / classes.len().max(1) as f64;
    let mut svg = open(PLOT, FRAME.bottom + 26.0);
    axis.draw(&mut svg, format);
    for (i, (name, value)) in classes.iter().enumerate() {
        let left = FRAME.left + slot * i as f64;
        let bar = (
            left + slot * 0.12,
            axis.y(*value),
            slot * 0.76,
            FRAME.bottom - axis.y(*value),
        );
        rect(
            &mut svg,
            "ours",
            bar,
            &format!("{name}: {}", format(*value)),
        );
        text(
            &mut svg,
            "middle",
            (left + slot / 2.0, FRAME.bottom + 18.0),
            "",
            name,
        );
    }
    close(svg)
}

/// A bar of a bar chart.
pub(super) struct Bar {
    pub(super) name: String,
    /// `None` if it is not known.
    pub(super) value: Option<f64>,
    /// Text after the value.
    pub(super) note: String,
    /// Whether the bar has the colour of SluiceFS.
    pub(super) ours: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    Linear,
    Log,
}

/// Height of a horizontal bar.
const BAR_HEIGHT: f64 = 30.0;

/// Horizontal bars, each with its name on the left and its value on the right.
pub(super) fn bars(bars: &[Bar], scale: Scale, format: Format) -> String {
    const NAMES: f64 = 230.0;
    const VALUES: f64 = 230.0;
    let mut svg = open(WIDE, BAR_HEIGHT * bars.len() as f64 + 4.0);
    let known = || bars.iter().filter_map(|bar| bar.value).filter(|v| *v > 0.0);
    let most = known().fold(0.0, f64::max).max(1e-9);
    // So that the shortest bar of a logarithmic scale is visible.
    let floor = known().fold(f64::INFINITY, f64::min).min(most) / 2.0;
    let length = |value: f64| {
        let part = match scale {
            Scale::Linear => value / most,
            Scale::Log => (value.max(floor) / floor).log10() / (most / floor).log10().max(1e-9),
        };
        (WIDE - NAMES - VALUES) * part
    };
    for (i, bar) in bars.iter().enumerate() {
        let top = BAR_HEIGHT * i as f64;
        let middle = top + BAR_HEIGHT / 2.0 + 4.0;
        text(&mut svg, "end", (NAMES - 10.0, middle), "name", &bar.name);
        let (width, label) = match bar.value {
            Some(value) => (
                length(value).max(1.0),
                format!("{}  {}", format(value), bar.note),
            ),
            None => (0.0, format!("–  {}", bar.note)),
        };
        let class = if bar.ours { "ours" } else { "theirs" };
        let shape = (NAMES, top + 4.0, width, BAR_HEIGHT - 8.0);
        rect(&mut svg, class, shape, &format!("{}: {label}", bar.name));
        let end = (NAMES + width + 8.0, middle);
        text(&mut svg, "start", end, "value", label.trim_end());
    }
    close(svg)
}

/// About `count` steps of 1, 2 or 5 times a power of ten, from zero to the first that is not less
/// than `most`.
pub(super) fn ticks(most: f64, count: usize) -> Vec<f64> {
    if most <= 0.0 || most.is_nan() || most.is_infinite() {
        return vec![0.0, 1.0];
    }
    let rough = most / count as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .map(|m| m * power)
        .into_iter()
        .find(|step| *step >= rough * (1.0 - 1e-9))
        .unwrap_or(10.0 * power);
    let steps = (most / step - 1e-9).ceil().max(1.0) as usize;
    (0..=steps).map(|i| i as f64 * step).collect()
}

/// A number without trailing zeroes.
fn plain(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn open(width: f64, height: f64) -> String {
    format!(r#"<svg viewBox="0 0 {width} {height}" role="img" xmlns="http://www.w3.org/2000/svg">"#)
}

fn close(svg: String) -> String {
    svg + "</svg>"
}

/// An SVG file with a style and a background of its own.
pub(super) fn standalone(size: (f64, f64), name: &str, style: &str, body: &str) -> String {
    let ((width, height), name) = (size, escape(name));
    format!(
        r#"<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" aria-label="{name}" xmlns="http://www.w3.org/2000/svg">
<style>
{style}</style>
<rect class="background" width="100%" height="100%" rx="8"/>
{body}</svg>
"#
    )
}

pub(super) fn line(svg: &mut String, class: &str, from: (f64, f64), to: (f64, f64)) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = write!(
        svg,
        r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
    );
}

pub(super) fn text(svg: &mut String, anchor: &str, at: (f64, f64), class: &str, text: &str) {
    let ((x, y), text) = (at, escape(text));
    let _ = write!(
        svg,
        r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" class="{class}">{text}</text>"#
    );
}

pub(super) fn rect(svg: &mut String, class: &str, shape: (f64, f64, f64, f64), title: &str) {
    let ((x, y, width, height), title) = (shape, escape(title));
    let _ = write!(
        svg,
        r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" rx="2"><title>{title}</title></rect>"#
    );
}

/// Escapes text for an element or an attribute.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(n: f64) -> String {
        format!("{n:.0}")
    }

    #[test]
    fn ticks_are_round_numbers_up_to_the_maximum() {
        assert_eq!(ticks(37.0, 4), [0.0, 10.0, 20.0, 30.0, 40.0]);
        assert_eq!(ticks(1.0, 4), [0.0, 0.5, 1.0]);
        assert_eq!(ticks(0.0, 4), [0.0, 1.0]);
        assert_eq!(
            ticks(80_000.0, 4),
            [0.0, 20_000.0, 40_000.0, 60_000.0, 80_000.0]
        );
        for most in [0.003, 1.5, 99.0, 123_456.0] {
            let ticks = ticks(most, 4);
            let top = *ticks.last().unwrap();
            assert!(
                top >= most && top <= 2.5 * most && ticks.len() <= 6,
                "{most}: {ticks:?}"
            );
        }
    }

    #[test]
    fn a_longer_bar_is_a_greater_value() {
        let bar = |name: &str, value| Bar {
            name: name.to_owned(),
            value,
            note: String::new(),
            ours: name == "a",
        };
        let all = [bar("a", Some(400.0)), bar("b", Some(4.0)), bar("<c>", None)];
        let widths = |scale| -> Vec<f64> {
            let svg = bars(&all, scale, number);
            let parts = svg.split("<rect").skip(1);
            parts
                .map(|r| {
                    r.split("width=\"")
                        .nth(1)
                        .unwrap()
                        .split('"')
                        .next()
                        .unwrap()
                        .parse()
                        .unwrap()
                })
                .collect()
        };
        let linear = widths(Scale::Linear);
        assert!(
            (linear[0] / linear[1] - 100.0).abs() < 5.0 && linear[2] == 0.0,
            "{linear:?}"
        );
        let log = widths(Scale::Log);
        assert!(log[0] > log[1] && log[0] < 10.0 * log[1], "{log:?}");
        assert!(bars(&all, Scale::Log, number).contains("&lt;c&gt;"));
    }

    #[test]
    fn charts_without_values_are_valid() {
        for svg in [
            steps(&[], &[], number),
            histogram(&[], number),
            bars(&[], Scale::Log, number),
        ] {
            assert!(
                svg.starts_with("<svg") && svg.ends_with("</svg>") && !svg.contains("NaN"),
                "{svg}"
            );
        }
    }

    #[test]
    fn names_of_marks_do_not_overlap() {
        let marks = [
            (0.0, "write".into()),
            (0.01, "hidden".into()),
            (0.97, "sync".into()),
        ];
        let svg = steps(&[(1.0, 1.0)], &marks, number);
        assert!(
            svg.contains(">write<") && !svg.contains(">hidden<"),
            "{svg}"
        );
        assert!(svg.contains(r#"text-anchor="end" class="">sync<"#), "{svg}");
        assert_eq!(svg.matches(r#"class="mark""#).count(), 3);
    }

    #[test]
    fn curves_have_one_axis_and_a_legend() {
        let series = [("p50", vec![(1.0, 10.0)]), ("p99", vec![(1.0, 20.0)])];
        let svg = curves(&series, &[], number);
        assert!(svg.contains(r#"class="curve" d="M60.0 99.0L"#), "{svg}");
        let other = r#"class="curve other" d="M60.0 24.0L490.0 24.0"#;
        assert!(svg.contains(other), "{svg}");
        assert!(svg.contains(">p50<") && svg.contains(">p99<"));
        assert_eq!(svg.matches(r#"class="area""#).count(), 1);
    }

    #[test]
    fn a_curve_is_constant_in_each_interval() {
        let svg = steps(&[(0.1, 10.0), (0.2, 20.0)], &[(0.1, "sync".into())], number);
        // Left edge, middle and right edge; half of the height and the top.
        assert!(
            svg.contains("M60.0 99.0L275.0 99.0L275.0 24.0L490.0 24.0"),
            "{svg}"
        );
        assert!(svg.contains(">sync<"));
    }
}

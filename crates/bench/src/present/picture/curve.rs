//! Points of two columns, connected to curves.

use super::super::chart::{line, standalone, text, ticks};
use super::super::number::count;
use super::table;
use std::fmt::Write;

const WIDTH: f64 = 840.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = WIDTH - 32.0;
const TOP: f64 = 84.0;
const BOTTOM: f64 = HEIGHT - 56.0;
/// The greatest mean width of the characters of a label.
const CHARACTER: f64 = 6.6;
const LABEL_HEIGHT: f64 = 14.0;
const RADIUS: f64 = 4.5;

/// A picture of two columns of a Markdown table: a point for each line.
///
/// The last part of a line's name, after a comma, is the label of its point. Points whose names
/// have the same first part are connected, in the order of the table. Both axes are linear and
/// start at zero.
#[derive(Clone, Debug, Default)]
pub struct Curve {
    /// Markdown with a table.
    pub text: String,
    /// The heading of the column on the horizontal axis.
    pub x: String,
    /// The heading of the column on the vertical axis.
    pub y: String,
    /// The title.
    pub title: String,
}

struct Series<'a> {
    name: &'a str,
    /// Label, x, y.
    points: Vec<(&'a str, f64, f64)>,
}

impl Curve {
    /// Returns the SVG.
    ///
    /// # Errors
    /// If no table has both columns.
    pub fn draw(&self) -> Result<String, String> {
        let tables = table::tables(&self.text);
        let (table, x) = table::find(&tables, &self.x)?;
        let (_, y) = table::find(std::slice::from_ref(table), &self.y)?;
        let names: Vec<_> = table.lines.iter().map(|l| table::name(table, l)).collect();
        let mut series: Vec<Series<'_>> = Vec::new();
        for (line, name) in table.lines.iter().zip(&names) {
            let (name, label) = name.rsplit_once(", ").unwrap_or((name, ""));
            let number = |at: usize| Some(table::number(line.get(at)?)?.value);
            let Some((x, y)) = number(x).zip(number(y)) else {
                continue;
            };
            let found = series.iter().position(|of| of.name == name);
            let index = found.unwrap_or_else(|| {
                let points = Vec::new();
                series.push(Series { name, points });
                series.len() - 1
            });
            series[index].points.push((label, x, y));
        }
        let body = self.body(&series);
        let style = include_str!("style.css");
        Ok(standalone((WIDTH, HEIGHT), &self.title, style, &body))
    }

    fn body(&self, series: &[Series<'_>]) -> String {
        let points = || series.iter().flat_map(|of| &of.points);
        let across = ticks(points().map(|p| p.1).fold(0.0, f64::max), 8);
        let up = ticks(points().map(|p| p.2).fold(0.0, f64::max), 5);
        let last = |ticks: &[f64]| ticks.last().copied().unwrap_or(1.0);
        let (most_x, most_y) = (last(&across), last(&up));
        let at = |x: f64, y: f64| {
            let right = (RIGHT - LEFT) * x / most_x;
            (LEFT + right, BOTTOM - (BOTTOM - TOP) * y / most_y)
        };
        let mut svg = String::new();
        text(&mut svg, "start", (16.0, 28.0), "title", &self.title);
        for &tick in &across {
            let (x, _) = at(tick, 0.0);
            line(&mut svg, "grid", (x, TOP), (x, BOTTOM));
            text(&mut svg, "middle", (x, BOTTOM + 18.0), "unit", &label(tick));
        }
        for &tick in &up {
            let (_, y) = at(0.0, tick);
            line(&mut svg, "grid", (LEFT, y), (RIGHT, y));
            text(&mut svg, "end", (LEFT - 8.0, y + 4.0), "unit", &label(tick));
        }
        text(&mut svg, "end", (RIGHT, BOTTOM + 38.0), "name", &self.x);
        text(&mut svg, "start", (16.0, TOP - 14.0), "name", &self.y);
        legend(&mut svg, series);
        for (i, of) in series.iter().enumerate() {
            let class = class(of, i);
            let places: Vec<_> = of.points.iter().map(|p| at(p.1, p.2)).collect();
            let path: Vec<_> = places
                .iter()
                .map(|(x, y)| format!("{x:.1},{y:.1}"))
                .collect();
            let path = path.join(" ");
            let _ = write!(svg, r#"<polyline class="curve {class}" points="{path}"/>"#);
            for (x, y) in places {
                let _ = write!(
                    svg,
                    r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="{RADIUS}"/>"#
                );
            }
        }
        let mut places = Vec::new();
        let mut lines = Vec::new();
        for of in series {
            let points = of.points.iter().map(|p| (p.0, at(p.1, p.2)));
            let from = places.len();
            places.extend(points);
            lines.extend(places[from..].windows(2).map(|ends| (ends[0].1, ends[1].1)));
        }
        labels(&mut svg, &places, &lines);
        svg
    }
}

/// The classes of a curve.
fn class(series: &Series<'_>, index: usize) -> &'static str {
    match index {
        _ if series.name.contains("SluiceFS") => "ours",
        0 | 1 => "theirs",
        _ => "theirs dashed",
    }
}

fn label(tick: f64) -> String {
    match tick.fract() {
        0.0 => count(tick as u64),
        _ => format!("{tick}"),
    }
}

/// The names of the curves, in one line at the right.
fn legend(svg: &mut String, series: &[Series<'_>]) {
    let mut right = RIGHT;
    for (i, of) in series.iter().enumerate().rev() {
        text(svg, "end", (right, TOP - 14.0), "name", of.name);
        right -= CHARACTER * of.name.chars().count() as f64 + 14.0;
        let (class, y) = (class(of, i), TOP - 18.5);
        let _ = write!(
            svg,
            r#"<circle class="{class}" cx="{right:.1}" cy="{y:.1}" r="{RADIUS}"/>"#
        );
        right -= 20.0;
    }
}

/// A rectangle: left, top, right, bottom.
type Place = [f64; 4];

/// A point of the picture.
type At = (f64, f64);

/// Writes a label next to each point where it covers no point and no other label, and no line if
/// there is such a place.
fn labels(svg: &mut String, points: &[(&str, At)], lines: &[(At, At)]) {
    let around = |&(_, (x, y)): &(&str, At)| [x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS];
    let mut taken: Vec<Place> = points.iter().map(around).collect();
    for (label, (x, y)) in points {
        let width = CHARACTER * label.chars().count() as f64;
        let place = |left: f64, top: f64| [left, top, left + width, top + LABEL_HEIGHT];
        let (right, left) = (x + RADIUS + 4.0, x - RADIUS - 4.0 - width);
        let (above, below) = (y - RADIUS - LABEL_HEIGHT, y + RADIUS);
        let middle = y - LABEL_HEIGHT / 2.0;
        let places = [
            place(right, middle),
            place(right, above),
            place(left, middle),
            place(left, above),
            place(right, below),
            place(left, below),
        ];
        let inside = |p: &&Place| p[0] >= LEFT && p[2] <= WIDTH && p[1] >= TOP && p[3] <= BOTTOM;
        let free = |p: &&Place| !taken.iter().any(|other| overlap(p, other));
        let clear = |p: &&Place| !lines.iter().any(|line| crosses(line, p));
        let mut candidates: Vec<_> = places.iter().filter(inside).filter(free).collect();
        candidates.sort_by_key(|place| !clear(place));
        // A label without room is left out.
        let Some(&&place) = candidates.first() else {
            continue;
        };
        taken.push(place);
        text(svg, "start", (place[0], place[1] + 11.0), "unit", label);
    }
}

/// Returns whether a line covers a part of a place, as judged by points of the line.
fn crosses(&((x1, y1), (x2, y2)): &(At, At), place: &Place) -> bool {
    let steps = ((x2 - x1).hypot(y2 - y1) / 2.0).ceil().max(1.0);
    (0..=steps as u32).any(|step| {
        let part = f64::from(step) / steps;
        let (x, y) = (x1 + (x2 - x1) * part, y1 + (y2 - y1) * part);
        overlap(&[x, y, x, y], place)
    })
}

fn overlap(a: &Place, b: &Place) -> bool {
    a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3]
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
|  | reader/s | writer MiB/s |
|---|--:|--:|
| SluiceFS, wbt_loss 10 | 8,000 | 50 |
| SluiceFS, wbt_loss 90 | 1,000 | 400 |
| kernel ext4, wbt 500 | 2,000 | 300 |
| kernel ext4, wbt 2000 | 2,001 | 300 |
| kernel ext4, wbt 9 | – | 300 |
";

    fn curve() -> Curve {
        Curve {
            text: TABLE.to_owned(),
            x: "reader/s".to_owned(),
            y: "writer MiB/s".to_owned(),
            title: "a < b".to_owned(),
        }
    }

    #[test]
    fn points_of_one_name_are_connected() {
        let svg = curve().draw().unwrap();
        let points: Vec<Vec<(f64, f64)>> = svg
            .split("<polyline ")
            .skip(1)
            .map(|line| {
                let points = line.split_once("points=\"").unwrap().1;
                let points = points.split_once('"').unwrap().0.split(' ');
                let pair = |p: &str| p.split_once(',').map(|(x, y)| (x.parse(), y.parse()));
                points
                    .map(|p| pair(p).map(|(x, y)| (x.unwrap(), y.unwrap())).unwrap())
                    .collect()
            })
            .collect();
        assert_eq!(
            points.iter().map(Vec::len).collect::<Vec<_>>(),
            [2, 2],
            "{svg}"
        );
        let ours = &points[0];
        let x = |i: usize| ours[i].0 - LEFT;
        assert!((x(0) / x(1) - 8.0).abs() < 0.02, "{ours:?}");
        let y = |i: usize| BOTTOM - ours[i].1;
        assert!((y(1) / y(0) - 8.0).abs() < 0.05, "{ours:?}");
        for part in [
            ">SluiceFS<",
            ">kernel ext4<",
            ">wbt_loss 10<",
            ">a &lt; b<",
            ">8,000<",
        ] {
            assert!(svg.contains(part), "{part} in {svg}");
        }
    }

    #[test]
    fn labels_do_not_overlap() {
        let mut svg = String::new();
        let line = ((300.0, 200.0), (400.0, 200.0));
        labels(&mut svg, &[("abc", (300.0, 200.0)); 9], &[line]);
        let place = |text: &str| {
            let number = |name: &str| -> f64 {
                let value = text.split_once(&format!(" {name}=\"")).unwrap().1;
                value.split_once('"').unwrap().0.parse().unwrap()
            };
            let (x, y) = (number("x"), number("y"));
            [x, y - 11.0, x + 3.0 * CHARACTER, y + 3.0]
        };
        let places: Vec<_> = svg.split("<text").skip(1).map(place).collect();
        assert!((3..=6).contains(&places.len()), "{svg}");
        assert!(!crosses(&line, &places[0]), "{svg}");
        for (i, a) in places.iter().enumerate() {
            assert!(places[..i].iter().all(|b| !overlap(a, b)), "{svg}");
        }
    }

    #[test]
    fn an_unknown_column_is_an_error() {
        let wrong = Curve {
            y: "MiB/s".to_owned(),
            ..curve()
        };
        let error = wrong.draw().unwrap_err();
        assert!(error.contains("\"reader/s\", \"writer MiB/s\""), "{error}");
    }
}

//! Panels of horizontal bars.

use super::chart::{self, line, rect, text};

/// Width of a picture in pixels, about that of a page on GitHub.
const WIDTH: f64 = 840.0;
const MARGIN: f64 = 16.0;
/// Distance of two bars, and of two lines of text.
const LINE: f64 = 22.0;
const BAR: f64 = 14.0;
const TITLE: f64 = 28.0;
const GAP: f64 = 10.0;
/// The greatest mean width of the characters of a name.
const CHARACTER: f64 = 7.0;
/// The least distance of labels on an axis.
const LABEL: f64 = 64.0;

pub(super) struct Bar {
    pub(super) name: String,
    /// `None` if it is not known.
    pub(super) value: Option<f64>,
    /// Whether the value is in microseconds.
    pub(super) is_time: bool,
    /// The value as text.
    pub(super) figure: String,
    /// Text in parentheses after it, or empty.
    pub(super) ratio: String,
    /// Whether the bar has the colour of SluiceFS.
    pub(super) ours: bool,
}

impl Bar {
    fn label(&self) -> String {
        match &*self.ratio {
            "" => self.figure.clone(),
            ratio => format!("{}  ({ratio})", self.figure),
        }
    }
}

pub(super) struct Panel {
    pub(super) title: String,
    /// Text after the title, or empty.
    pub(super) unit: String,
    /// Panels with equal texts have one axis.
    pub(super) axis: String,
    pub(super) logarithmic: bool,
    pub(super) bars: Vec<Bar>,
}

/// The axis of one panel or several. A linear axis starts at zero.
struct Axis {
    most: f64,
    /// The power of ten at which a logarithmic axis starts.
    floor: Option<f64>,
    is_time: bool,
    left: f64,
    width: f64,
}

impl Axis {
    fn of(panel: &Panel, panels: &[Panel], left: f64, width: f64) -> Axis {
        let same = panels.iter().filter(|other| other.axis == panel.axis);
        let bars = || same.clone().flat_map(|panel| &panel.bars);
        let values = || bars().filter_map(|bar| bar.value).filter(|v| *v > 0.0);
        let most = values().fold(0.0, f64::max).max(1e-9);
        let least = values().fold(most, f64::min);
        // So that the shortest bar is visible.
        let below = 10f64.powf((least * 0.8).log10().floor());
        Axis {
            most,
            floor: panel.logarithmic.then_some(below),
            is_time: bars().any(|bar| bar.is_time),
            left,
            width,
        }
    }

    fn length(&self, value: f64) -> f64 {
        let part = match self.floor {
            None => value / self.most,
            Some(floor) => (value.max(floor) / floor).log10() / (self.most / floor).log10(),
        };
        self.width * part
    }

    /// The powers of ten on a logarithmic axis.
    fn ticks(&self) -> Vec<f64> {
        let powers = std::iter::successors(self.floor, |power| Some(power * 10.0));
        powers.take_while(|power| *power <= self.most).collect()
    }

    fn label(&self, tick: f64) -> String {
        match tick {
            us if !self.is_time => format!("{us}"),
            us if us < 1e3 => format!("{us} µs"),
            us if us < 1e6 => format!("{} ms", us / 1e3),
            us => format!("{} s", us / 1e6),
        }
    }

    /// Draws lines from `top` to `bottom` and labels below them.
    fn draw(&self, svg: &mut String, top: f64, bottom: f64) {
        let mut free = 0.0;
        for tick in self.ticks() {
            let x = self.left + self.length(tick);
            line(svg, "grid", (x, top), (x, bottom));
            if x >= free {
                text(svg, "middle", (x, bottom + 14.0), "unit", &self.label(tick));
                free = x + LABEL;
            }
        }
    }
}

/// Draws panels one below the other, with lines of text at the end.
pub(super) fn draw(panels: &[Panel], captions: &[String]) -> String {
    let bars = || panels.iter().flat_map(|panel| &panel.bars);
    let names = bars().map(|bar| width(&bar.name)).fold(0.0, f64::max);
    let labels = bars().map(|bar| width(&bar.label())).fold(0.0, f64::max);
    let left = MARGIN + names + GAP;
    let room = (WIDTH - left - labels - GAP - MARGIN).max(60.0);
    let mut body = String::new();
    let mut top = MARGIN / 2.0;
    for panel in panels {
        title(&mut body, panel, top);
        top += TITLE;
        let axis = Axis::of(panel, panels, left, room);
        let bottom = top + LINE * panel.bars.len() as f64;
        axis.draw(&mut body, top, bottom);
        for bar in &panel.bars {
            draw_bar(&mut body, bar, &axis, top);
            top += LINE;
        }
        top += if panel.logarithmic { LINE + GAP } else { GAP };
    }
    let legend = bars()
        .any(|bar| !bar.ratio.is_empty())
        .then_some("In parentheses: how many times faster the first bar is.");
    for caption in captions.iter().map(String::as_str).chain(legend) {
        text(&mut body, "start", (MARGIN, top + 12.0), "", caption);
        top += LINE;
    }
    let height = top + MARGIN / 2.0;
    let name = panels.first().map_or("", |panel| &panel.title);
    chart::standalone((WIDTH, height), name, include_str!("style.css"), &body)
}

fn width(text: &str) -> f64 {
    CHARACTER * text.chars().count() as f64
}

fn title(svg: &mut String, panel: &Panel, top: f64) {
    text(svg, "start", (MARGIN, top + 18.0), "title", &panel.title);
    let scale = match panel.logarithmic {
        true => "logarithmic scale",
        false => "",
    };
    let unit = [&*panel.unit, scale].map(str::to_owned);
    let unit: Vec<_> = unit.into_iter().filter(|part| !part.is_empty()).collect();
    let at = (WIDTH - MARGIN, top + 18.0);
    text(svg, "end", at, "unit", &unit.join(", "));
}

fn draw_bar(svg: &mut String, bar: &Bar, axis: &Axis, top: f64) {
    let middle = top + LINE / 2.0 + 4.5;
    text(svg, "end", (axis.left - GAP, middle), "name", &bar.name);
    let length = bar.value.map_or(0.0, |value| axis.length(value).max(1.0));
    let class = if bar.ours { "ours" } else { "theirs" };
    let shape = (axis.left, top + (LINE - BAR) / 2.0, length, BAR);
    let label = bar.label();
    rect(svg, class, shape, &format!("{}: {label}", bar.name));
    let end = (axis.left + length + GAP / 2.0 + 1.0, middle);
    text(svg, "start", end, "value", &label);
}

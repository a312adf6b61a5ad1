//! A strict reader of Prometheus's text format, version 0.0.4
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>). It shares no code with the
//! writer.

use std::collections::{BTreeMap, BTreeSet};

/// The labels of a sample.
pub type Labels = BTreeMap<String, String>;

/// The samples of a text by name and labels.
#[derive(Debug, Default)]
pub struct Exposition {
    pub types: BTreeMap<String, String>,
    pub samples: BTreeMap<(String, Labels), f64>,
}

impl Exposition {
    /// The sample with this name and exactly these labels.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let key = (name.to_owned(), labels.iter().map(owned).collect());
        let value = self.samples.get(&key);
        *value.unwrap_or_else(|| panic!("{key:?} in {:#?}", self.samples.keys()))
    }
}

fn is_name(name: &str) -> bool {
    let rest = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    name.starts_with(|c: char| rest(c) && !c.is_ascii_digit()) && name.chars().all(rest)
}

/// Splits `name{a="b"} 1` into name, labels and value.
fn sample(line: &str) -> Option<(String, Labels, f64)> {
    let name_ends = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(name_ends);
    let mut labels = Labels::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, quoted) = rest.split_once("=\"")?;
            let mut value = String::new();
            let mut chars = quoted.char_indices();
            let ends = loop {
                match chars.next()? {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match chars.next()?.1 {
                        'n' => '\n',
                        c @ ('\\' | '"') => c,
                        _ => return None,
                    }),
                    (_, c) => value.push(c),
                }
            };
            if !is_name(label) || labels.insert(label.to_owned(), value).is_some() {
                return None;
            }
            rest = &quoted[ends + 1..];
            rest = rest.strip_prefix(',').unwrap_or(rest);
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ')?;
    let value = match value {
        "+Inf" => f64::INFINITY,
        number if number.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
            number.parse().ok()?
        }
        _ => return None,
    };
    is_name(name).then(|| (name.to_owned(), labels, value))
}

/// Reads a text; panics where it is not as the format demands.
pub fn read(text: &str) -> Exposition {
    assert!(text.ends_with('\n'), "the last line ends");
    let mut found = Exposition::default();
    let (mut helped, mut family) = (BTreeSet::new(), None::<(String, String)>);
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').expect(line);
            assert!(is_name(name) && !text.is_empty(), "{line}");
            assert!(helped.insert(name.to_owned()), "one HELP: {line}");
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect(line);
            assert!(helped.contains(name), "HELP comes before TYPE: {line}");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            let before = found.types.insert(name.to_owned(), kind.to_owned());
            assert!(before.is_none(), "one TYPE: {line}");
            family = Some((name.to_owned(), kind.to_owned()));
        } else {
            let (name, labels, value) = sample(line).unwrap_or_else(|| panic!("{line}"));
            let (of, kind) = family.as_ref().expect(line);
            let suffix = name.strip_prefix(of.as_str()).expect(line);
            match kind.as_str() {
                "histogram" => assert!(["_bucket", "_sum", "_count"].contains(&suffix), "{line}"),
                _ => assert_eq!(suffix, "", "samples follow their TYPE: {line}"),
            }
            assert!(kind == "gauge" || value >= 0.0, "{line}");
            assert!(!labels.contains_key("le") || suffix == "_bucket", "{line}");
            let before = found.samples.insert((name, labels), value);
            assert!(before.is_none(), "one sample: {line}");
        }
    }
    check_histograms(&found);
    found
}

/// Buckets grow up to `+Inf`, which is the count.
fn check_histograms(found: &Exposition) {
    let histograms = found.types.iter().filter(|(_, kind)| *kind == "histogram");
    for (name, _) in histograms {
        let mut series: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
        for ((sample, labels), value) in &found.samples {
            if *sample == format!("{name}_bucket") {
                let mut labels = labels.clone();
                let bound = labels.remove("le").expect("a bound");
                let bound = bound.parse().unwrap_or(f64::INFINITY);
                series.entry(labels).or_default().push((bound, *value));
            }
        }
        assert!(!series.is_empty(), "{name} has buckets");
        for (labels, mut buckets) in series {
            buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
            let ascends = buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1);
            assert!(ascends, "{name} {labels:?} {buckets:?}");
            let last = buckets.last().copied().expect("a bucket");
            assert_eq!(last.0, f64::INFINITY, "{name} {labels:?}");
            let count = &found.samples[&(format!("{name}_count"), labels.clone())];
            assert_eq!(last.1, *count, "{name} {labels:?}");
            assert!(found.samples.contains_key(&(format!("{name}_sum"), labels)));
        }
    }
}

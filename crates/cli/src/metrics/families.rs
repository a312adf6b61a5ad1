//! Families of metrics, and their text.

use prometheus::TextEncoder;
use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType,
};
use sluicefs::LatencyHistogram;
use std::time::Duration;

/// Names and values of labels.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// Families of metrics of one volume.
pub struct Families {
    volume: String,
    families: Vec<MetricFamily>,
}

impl Families {
    /// `volume` is the value of the label that each sample has.
    pub fn new(volume: &str) -> Families {
        Families {
            volume: volume.to_owned(),
            families: Vec::new(),
        }
    }

    /// The text of all families.
    ///
    /// # Errors
    /// A family has no samples.
    pub fn text(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.families)
    }

    fn metric(&self, labels: Labels) -> Metric {
        let pair = |(name, value): (&str, &str)| {
            let mut pair = LabelPair::default();
            pair.set_name(name.into());
            pair.set_value(value.into());
            pair
        };
        let volume = ("volume", self.volume.as_str());
        let labels = std::iter::once(volume).chain(labels.iter().copied());
        Metric::from_label(labels.map(pair).collect())
    }

    /// Adds a family, `sluicefs_` and `name`.
    pub fn add(&mut self, name: &str, help: &str, kind: MetricType, metrics: Vec<Metric>) {
        let mut family = MetricFamily::default();
        family.set_name(format!("sluicefs_{name}"));
        family.set_help(help.into());
        family.set_field_type(kind);
        family.set_metric(metrics);
        self.families.push(family);
    }

    pub fn counter_metric(&self, labels: Labels, value: f64) -> Metric {
        let mut counter = Counter::default();
        counter.set_value(value);
        let mut metric = self.metric(labels);
        metric.set_counter(counter);
        metric
    }

    pub fn gauge_metric(&self, labels: Labels, value: f64) -> Metric {
        let mut gauge = Gauge::default();
        gauge.set_value(value);
        let mut metric = self.metric(labels);
        metric.set_gauge(gauge);
        metric
    }

    /// A histogram of times.
    pub fn histogram_metric(
        &self,
        labels: Labels,
        classes: &LatencyHistogram,
        sum_us: u64,
    ) -> Metric {
        let mut metric = self.metric(labels);
        metric.set_histogram(seconds(classes, sum_us));
        metric
    }

    pub fn counter(&mut self, name: &str, help: &str, value: u64) {
        let metric = self.counter_metric(&[], value as f64);
        self.add(name, help, MetricType::COUNTER, vec![metric]);
    }

    /// Adds a counter of time, in seconds.
    pub fn time(&mut self, name: &str, help: &str, value: Duration) {
        let metric = self.counter_metric(&[], value.as_secs_f64());
        self.add(name, help, MetricType::COUNTER, vec![metric]);
    }

    pub fn gauge(&mut self, name: &str, help: &str, value: f64) {
        let metric = self.gauge_metric(&[], value);
        self.add(name, help, MetricType::GAUGE, vec![metric]);
    }

    pub fn bytes(&mut self, name: &str, help: &str, value: u64) {
        self.gauge(name, help, value as f64);
    }

    /// A gauge that is 1 for the current one of some states and 0 for the others.
    pub fn states(&mut self, name: &str, help: &str, label: &str, states: &[(&str, bool)]) {
        let metric = |(state, is_now): &(&str, bool)| {
            self.gauge_metric(&[(label, state)], f64::from(u8::from(*is_now)))
        };
        let metrics = states.iter().map(metric).collect();
        self.add(name, help, MetricType::GAUGE, metrics);
    }
}

/// A histogram of times. The bound of a bucket is the end of a class; the last class has none.
fn seconds(classes: &LatencyHistogram, sum_us: u64) -> Histogram {
    let mut counted = 0;
    let bucket = |(least, count): (u64, u64)| {
        counted += count;
        let mut bucket = Bucket::default();
        bucket.set_upper_bound((2 * least) as f64 / 1e6);
        bucket.set_cumulative_count(counted);
        bucket
    };
    let bounded = classes
        .classes()
        .filter(|(least, _)| *least < LatencyHistogram::LAST);
    let mut histogram = Histogram::default();
    histogram.set_bucket(bounded.map(bucket).collect());
    histogram.set_sample_count(classes.count());
    histogram.set_sample_sum(sum_us as f64 / 1e6);
    histogram
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_counted_in_the_buckets_from_its_end_on() {
        let histogram = seconds(&LatencyHistogram::default(), 3_500_000);
        assert_eq!(histogram.get_sample_sum(), 3.5);
        let bounds: Vec<_> = histogram
            .get_bucket()
            .iter()
            .map(Bucket::upper_bound)
            .collect();
        assert_eq!(bounds.len(), 23);
        assert_eq!((bounds[0], bounds[22]), (0.000_002, 8.388_608));
    }

    #[test]
    fn a_family_without_samples_is_an_error() {
        let mut families = Families::new("disk.img");
        families.add("empty", "Nothing.", MetricType::GAUGE, Vec::new());
        assert!(families.text().is_err());
    }
}

//! A snapshot as Prometheus text, and the region as a `prometheus` collector.
//!
//! The text goes through the library's encoder, which knows the escaping; this module only
//! translates.

use prometheus::core::{Collector, Desc};
use prometheus::proto;
use prometheus::{Encoder as _, TextEncoder};

use crate::catalog;
use crate::region::Region;
use crate::snapshot::{Busy, Family, Sample, Snapshot, Value};

/// Content type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4";

/// Why there is no text.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// No consistent look was possible.
    #[error(transparent)]
    Busy(#[from] Busy),
    /// The encoder refused a family.
    #[error("encode the metrics: {0}")]
    Encoder(#[from] prometheus::Error),
}

impl Snapshot {
    /// The snapshot in the text format that [`CONTENT_TYPE`] names.
    ///
    /// # Errors
    /// When the encoder refuses a family.
    pub fn encode_text(self) -> Result<String, EncodeError> {
        let mut text = String::new();
        TextEncoder::new().encode_utf8(&self.into_proto(), &mut text)?;
        debug_assert_eq!(TextEncoder::new().format_type(), CONTENT_TYPE);
        Ok(text)
    }

    fn into_proto(self) -> Vec<proto::MetricFamily> {
        self.families.into_iter().map(family).collect()
    }
}

fn family(family: Family) -> proto::MetricFamily {
    let mut out = proto::MetricFamily::default();
    let kind = match family.samples.first().map(|sample| &sample.value) {
        Some(Value::Gauge(_)) => proto::MetricType::GAUGE,
        Some(Value::Histogram { .. }) => proto::MetricType::HISTOGRAM,
        Some(Value::Counter(_)) | None => proto::MetricType::COUNTER,
    };
    out.set_name(family.name);
    out.set_help(family.help.to_owned());
    out.set_field_type(kind);
    out.set_metric(family.samples.into_iter().map(metric).collect());
    out
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus knows nothing but doubles")]
fn metric(sample: Sample) -> proto::Metric {
    let labels = sample.labels.into_iter().map(|(name, value)| {
        let mut pair = proto::LabelPair::default();
        pair.set_name(name);
        pair.set_value(value);
        pair
    });
    let mut out = proto::Metric::from_label(labels.collect());
    match sample.value {
        Value::Counter(total) => {
            let mut counter = proto::Counter::default();
            counter.set_value(total as f64);
            out.set_counter(counter);
        }
        Value::Gauge(value) => {
            let mut gauge = proto::Gauge::default();
            gauge.set_value(value);
            out.set_gauge(gauge);
        }
        Value::Histogram { bounds, counts, sum } => {
            let mut histogram = proto::Histogram::default();
            let mut total = 0u64;
            let mut buckets = Vec::with_capacity(bounds.len());
            for (bound, count) in bounds.iter().zip(&counts) {
                total = total.wrapping_add(*count);
                let mut bucket = proto::Bucket::default();
                bucket.set_upper_bound(*bound);
                bucket.set_cumulative_count(total);
                buckets.push(bucket);
            }
            let above = counts.get(bounds.len()).copied().unwrap_or(0);
            histogram.set_bucket(buckets);
            histogram.set_sample_count(total.wrapping_add(above));
            histogram.set_sample_sum(sum);
            out.set_histogram(histogram);
        }
    }
    out
}

/// The region as a collector for a `prometheus` registry, beside other collectors. A moment at
/// which no consistent look is possible yields nothing, which a scraper takes as a gap.
pub struct RegionCollector {
    region: Region,
    descs: Vec<Desc>,
}

impl RegionCollector {
    /// A collector of everything in `region`.
    ///
    /// # Errors
    /// When the library refuses a row of the catalog.
    pub fn new(region: Region) -> Result<Self, prometheus::Error> {
        let descs = catalog::all()
            .map(|metric| {
                let labels = metric.labels.iter().map(|label| label.name.to_owned()).collect();
                Desc::new(
                    metric.name.to_owned(),
                    metric.help.to_owned(),
                    labels,
                    std::collections::HashMap::new(),
                )
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { region, descs })
    }
}

impl Collector for RegionCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        self.region.snapshot().map_or_else(|Busy| Vec::new(), Snapshot::into_proto)
    }
}

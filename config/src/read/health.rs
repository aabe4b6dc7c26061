//! `healthCheck`.

use std::time::Duration;

use super::{complain, narrow};
use crate::model::{HealthCheck, HealthKind};
use crate::problem::{Report, quoted};
use crate::shape::table::DEFAULT_PROBE_TIMEOUT;
use crate::shape::tree::Object;
use crate::words::HealthWord;

pub(super) fn read(check: &Object, report: &mut Report) -> Option<HealthCheck> {
    let interval = check.get::<Duration>("interval");
    let timeout = timeout(check, interval, report);
    let kind = match check.word::<HealthWord>("type") {
        Some(HealthWord::Tcp) => {
            for name in ["path", "statusMin", "statusMax"] {
                if check.is_written(name) {
                    complain(report, check, name, format!("{name} is only valid with type http"));
                }
            }
            Some(HealthKind::Tcp)
        }
        Some(HealthWord::Http) => http(check, report),
        None => None,
    };
    Some(HealthCheck {
        kind: kind?,
        interval: interval?,
        timeout: timeout?,
        failure_threshold: check.get("failureThreshold").and_then(narrow)?,
        success_threshold: check.get("successThreshold").and_then(narrow)?,
    })
}

fn timeout(check: &Object, interval: Option<Duration>, report: &mut Report) -> Option<Duration> {
    let written = check.maybe::<Duration>("timeout")?;
    let interval = interval?;
    let timeout =
        written.unwrap_or_else(|| interval.min(Duration::from_millis(DEFAULT_PROBE_TIMEOUT)));
    if timeout > interval {
        let interval = humantime::format_duration(interval);
        complain(report, check, "timeout", format!("must not be above the interval ({interval})"));
        return None;
    }
    Some(timeout)
}

fn http(check: &Object, report: &mut Report) -> Option<HealthKind> {
    let path = check.get::<&str>("path").and_then(|path| {
        let origin_form = path.starts_with('/')
            && !path.starts_with("//")
            && !path.contains('#')
            && path.bytes().all(|b| b.is_ascii_graphic());
        if origin_form {
            return Some(path.to_owned());
        }
        let message = format!(
            "invalid path {} (one leading /, no host, no fragment, no blanks)",
            quoted(path)
        );
        complain(report, check, "path", message);
        None
    });
    let min = check.get::<u64>("statusMin");
    let max = check.get::<u64>("statusMax");
    if let (Some(min), Some(max)) = (min, max)
        && min > max
    {
        let name = if check.is_written("statusMin") { "statusMin" } else { "statusMax" };
        complain(report, check, name, format!("statusMin ({min}) is above statusMax ({max})"));
    }
    Some(HealthKind::Http {
        path: path?,
        status_min: min.and_then(narrow)?,
        status_max: max.and_then(narrow)?,
    })
}

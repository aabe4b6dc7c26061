//! An instance under observation, from the first connection to the last complaint.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::cast::{Act, Theatre};
use super::family::{Census, census, expect_census};
use super::part::Kind;
use super::verdict::{Allowed, Verdict};
use crate::harness::{Instance, Loopback, Storm, Upstream, baton, until};

/// The variable that arms faults.
const FAULT: &str = "BATON_FAULT";

/// Servers, and where the gateway is to listen.
pub(crate) struct Place {
    pub(crate) theatre: Theatre,
    echo: Upstream,
    entry: SocketAddr,
    storm: SocketAddr,
}

impl Place {
    pub(crate) fn new() -> Self {
        let loopback = Loopback::unique();
        let theatre = Theatre::open(loopback.next());
        let echo = Upstream::echo(loopback.next());
        Self { theatre, echo, entry: loopback.next(), storm: loopback.next() }
    }

    fn config(&self, supervisor: &Value) -> Value {
        let mut supervisor = supervisor.clone();
        let ready = &mut supervisor["readyTimeout"];
        if ready.is_null() {
            // Streams at full speed, and whatever else the machine does.
            *ready = json!("3m");
        }
        let rule = |name: &str, listen: SocketAddr, target: SocketAddr| {
            json!({ "name": name, "listen": listen.to_string(), "mode": "normal",
                    "maxConnectionsPerIP": 4096, "targets": [{ "address": target.to_string() }] })
        };
        json!({
            "supervisor": supervisor,
            "rules": [rule("cast", self.entry, self.theatre.address()),
                      rule("storm", self.storm, self.echo.address())],
        })
    }
}

/// A running instance with connections of every kind through it.
pub(crate) struct Setting<'p> {
    pub(crate) instance: Instance,
    pub(crate) act: Act<'p>,
    place: &'p Place,
    storm: Storm,
    before: Census,
    accepted: f64,
}

impl<'p> Setting<'p> {
    /// Starts `binary` with these faults armed.
    pub(crate) fn start(
        place: &'p Place,
        supervisor: &Value,
        binary: Option<&Path>,
        faults: &str,
        kinds: &[Kind],
    ) -> Self {
        let mut command = match binary {
            None => baton(),
            Some(binary) => {
                let mut command = Command::new(binary);
                command.env_remove("NOTIFY_SOCKET");
                command
            }
        };
        command.env(FAULT, faults);
        let instance = Instance::launch(&place.config(supervisor), command);
        instance.wait_serving();
        let before = until("the instance is at rest", || census(&instance));
        let storm = Storm::start(place.storm, 1);
        let act = place.theatre.raise(place.entry, kinds);
        let accepted = instance.metric("baton_connections_accepted_total");
        Self { instance, act, place, storm, before, accepted }
    }

    /// Waits until an armed fault was carried out; in which process.
    pub(crate) fn wait_fault(&self, fault: &str) -> u32 {
        let words = format!("fault {fault} in process ");
        until(&format!("fault {fault}"), || {
            let log = self.instance.log();
            let told = log.split(&words).nth(1)?;
            told.split_once('\n')?.0.parse().ok()
        })
    }

    /// Waits until one worker is left, and it serves.
    pub(crate) fn wait_settled(&self) {
        self.instance.wait_for("one worker is left, and it serves", |status| {
            let workers = status["workers"].as_array()?;
            let settled = workers.iter().any(|worker| worker["role"] == "serving");
            (settled && status["transition"].is_null()).then_some(())
        });
    }

    /// Starts another supervisor where the first has died.
    pub(crate) fn restart(&mut self) {
        let config = self.instance.config();
        self.instance.start_over(&config);
        self.instance.wait_serving();
    }

    /// Lets every connection end and looks at what is left; the complaints, and how many
    /// connections were reset.
    pub(crate) fn finish(self, allowed: Allowed) -> (Vec<String>, u64) {
        let Self { instance, act, place, storm, before, accepted } = self;
        storm.wait_served(5);
        // All speak once more, and end, while the instance is whole.
        let fates = act.curtain();
        let report = storm.finish();
        let mut complaints: Vec<String> =
            fates.iter().filter_map(|(kind, verdict)| allowed.complaint(*kind, verdict)).collect();
        let refused = match allowed {
            Allowed::Nothing | Allowed::Loaded => report.refused,
            // With the supervisor and its only worker gone at once nobody holds the listeners.
            Allowed::Resets | Allowed::Unprotected => 0,
        };
        if refused + report.corrupt > 0 || allowed == Allowed::Nothing && report.reset > 0 {
            complaints.push(format!("storm: {report:?}"));
        }
        let now = instance.metric("baton_connections_accepted_total");
        if now < accepted {
            complaints.push(format!("accepted connections went from {accepted} to {now}"));
        }
        if complaints.is_empty() {
            // Whatever happened, it works as on the first day.
            let fresh = place.theatre.raise(place.entry, &[Kind::Idle, Kind::Chatty]).curtain();
            assert!(fresh.iter().all(|(_, fate)| *fate == Verdict::Intact), "{fresh:?}");
            expect_census(&instance, &before);
            instance.stop();
        } else {
            eprintln!("--- log ---\n{}", instance.log());
        }
        let resets = fates.iter().filter(|(_, verdict)| *verdict == Verdict::Reset).count() as u64;
        (complaints, resets + report.reset)
    }
}

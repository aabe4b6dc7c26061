//! Stands in for a bad new version: it introduces itself well, and then does what the name of its
//! file says. The tests copy it under the name they need.
//!
//! `exit-0`, `exit-1`, `mute` (never says hello), `hang` (greets, then nothing), `refuse` (does
//! not like the configuration), `never-active` (ready, but never active), `crash` (aborts right
//! after it became active), `garbage` (writes nonsense to its control channel), `wrong-version`
//! (speaks no protocol we know), `no-self-check`.
//!
//! `resume-…` are good workers; as the supervisor's next image they panic, hang, or (`unaware`)
//! do not know that there is such a thing. `resume-rehearsal-…` do not come that far: when they are
//! to show that they could, they abort, hang, or refuse.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    clippy::exit,
    reason = "it is meant to fail"
)]

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;

use baton_handoff::message::{
    Generation, HelloSupervisor, ListenerKey, ListenerRole, ListenerWanted, Plan, Refused,
    ToSupervisor, ToWorker,
};
use baton_handoff::{WorkerEnd, inherit};
use baton_supervisor::program::{SELF_CHECK_ARGUMENT, SelfCheck};
use baton_supervisor::{REHEARSE_ARGUMENT, RESUME_ARGUMENT, Resume};

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_default();
    let manner = Path::new(&name).file_name().and_then(|name| name.to_str()).unwrap_or("");
    let args: Vec<_> = args.filter_map(|argument| argument.into_string().ok()).collect();
    if args.iter().any(|argument| argument == SELF_CHECK_ARGUMENT) {
        return introduce(manner);
    }
    if args.iter().any(|argument| argument == REHEARSE_ARGUMENT) {
        return rehearse(manner);
    }
    if args.first().is_some_and(|argument| argument == RESUME_ARGUMENT) {
        return resume(manner, &args);
    }
    let control = inherit::control_socket().expect("started by a supervisor");
    if manner.starts_with("resume-") {
        let build = baton_worker::Build { version: env!("CARGO_PKG_VERSION"), commit: "unknown" };
        return baton_worker::run(control, build);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match manner {
        "exit-0" => ExitCode::SUCCESS,
        "exit-1" => ExitCode::FAILURE,
        "mute" => hang(control),
        "garbage" => {
            let nonsense = [0x5A; 64];
            nix::sys::socket::send(
                control.as_raw_fd(),
                &nonsense,
                nix::sys::socket::MsgFlags::empty(),
            )
            .unwrap();
            hang(control)
        }
        _ => runtime.block_on(converse(manner, control)),
    }
}

fn introduce(manner: &str) -> ExitCode {
    let ours = baton_handoff::version::OURS;
    let (protocol_min, protocol_max) = match manner {
        "no-self-check" => return ExitCode::FAILURE,
        "wrong-version" => (999, 999),
        _ => (ours.min().0, ours.max().0),
    };
    let ours = SelfCheck::of_this_program("9.9.9");
    let state_formats = match manner {
        "resume-unaware" => Vec::new(),
        _ => ours.state_formats.clone(),
    };
    let check = SelfCheck { protocol_min, protocol_max, state_formats, ..ours };
    println!("{}", serde_json::to_string(&check).unwrap());
    ExitCode::SUCCESS
}

/// As the next image it would understand what it is left, unless it fails to say so.
fn rehearse(manner: &str) -> ExitCode {
    match manner {
        "resume-rehearsal-aborts" => std::process::abort(),
        "resume-rehearsal-hangs" => loop {
            std::thread::park();
        },
        "resume-rehearsal-refuses" => {
            println!("a newer version dislikes this");
            ExitCode::FAILURE
        }
        _ => {
            baton_supervisor::rehearse("9.9.9".into()).unwrap();
            ExitCode::SUCCESS
        }
    }
}

/// Fails to be the next image of a supervisor.
fn resume(manner: &str, args: &[String]) -> ExitCode {
    let number = |name: &str| {
        let value = args.iter().find_map(|argument| argument.strip_prefix(name));
        value.map(|value| value.parse().unwrap())
    };
    let call = Resume {
        state_fd: number("--state-fd=").unwrap(),
        back_fd: number("--back-fd="),
        failed: None,
        version: "9.9.9".into(),
    };
    let result = baton_supervisor::resume(call, |_| match manner {
        "resume-panics" => panic!("on purpose"),
        _ => loop {
            std::thread::park();
        },
    });
    result.map_or(ExitCode::FAILURE, |code| code)
}

/// Does nothing until it is killed, or its supervisor is gone.
fn hang(control: OwnedFd) -> ExitCode {
    socket2::SockRef::from(&control).set_nonblocking(false).unwrap();
    let mut buffer = [0; 65536];
    while let Ok(1..) = nix::unistd::read(&control, &mut buffer) {}
    ExitCode::FAILURE
}

async fn converse(manner: &str, control: OwnedFd) -> ExitCode {
    let end = WorkerEnd::new(control).unwrap();
    let hello = HelloSupervisor { version: "9.9.9".into(), pid: std::process::id() };
    end.send(&ToSupervisor::Hello(hello)).await.unwrap();
    loop {
        let Ok(received) = end.recv().await else { return ExitCode::FAILURE };
        let answer = match received.message {
            ToWorker::Prepare(_) if manner == "hang" => continue,
            ToWorker::Prepare(prepare) if manner == "refuse" => ToSupervisor::Refused(Refused {
                generation: prepare.generation,
                problems: vec!["a newer version dislikes this".into()],
            }),
            ToWorker::Prepare(prepare) => {
                ToSupervisor::Plan(plan(prepare.generation, &prepare.config))
            }
            ToWorker::Listeners(listeners) if listeners.last => {
                ToSupervisor::Ready(listeners.generation)
            }
            ToWorker::Activate(_) if manner == "never-active" => continue,
            ToWorker::Activate(generation) if manner == "crash" => {
                end.reply(received.transaction, &ToSupervisor::Active(generation)).await.unwrap();
                std::process::abort();
            }
            ToWorker::Drain(_) => return ExitCode::SUCCESS,
            _ => continue,
        };
        end.reply(received.transaction, &answer).await.unwrap();
    }
}

/// Asks for the same sockets a real worker would.
fn plan(generation: Generation, config: &[u8]) -> Plan {
    let config: serde_json::Value = serde_json::from_slice(config).unwrap();
    let listeners = config["rules"].as_array().unwrap().iter().map(|rule| {
        let listen = rule["listen"].as_str().unwrap();
        ListenerWanted {
            key: ListenerKey(listen.into()),
            role: ListenerRole::Rule,
            rule: rule["name"].as_str().unwrap().into(),
            address: listen.parse().unwrap(),
            dual_stack: false,
        }
    });
    Plan { generation, listeners: listeners.collect(), unchanged: false }
}

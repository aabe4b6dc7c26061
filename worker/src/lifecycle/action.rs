//! What the machine wants done.

use baton_handoff::message::{Generation, Migrate, Prepare, Recover, Side, Standing, ToSupervisor};

/// What the driver has to do, in order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Say who we are.
    Greet,
    /// Send this message.
    Send(ToSupervisor),
    /// Send a sign of life.
    Pulse,
    /// Compile the configuration and report `Compiled`.
    Compile(Prepare),
    /// Keep the descriptors that came with the last `Listeners` for the pending generation.
    TakeListeners,
    /// Drop the pending generation and every descriptor that only it needed.
    DropPending,
    /// Make everything of the pending generation that can be made before it serves; on failure
    /// report `ServiceFailed` and skip the actions that follow.
    Build(Generation),
    /// Publish the built generation and accept for it; failure as with `Build`.
    Serve(Generation),
    /// Poll the listeners of the published generation again; failure as with `Serve`.
    Resume(Generation),
    /// Deregister every listener.
    StopAccepting,
    /// Let the listeners go for good: as long as a copy is held here, clients of an instance that
    /// is stopping would still be let into the queue.
    CloseListeners,
    /// Report `Empty` as soon as no connection lives (at once when none does).
    WatchEmpty,
    /// Reset every connection that still lives, then report `Empty`.
    Cut,
    /// Tell the supervisor that adopts us how things are, and return the listeners.
    Account(Standing),
    /// Give the supervisor what it needs should this process die, if there is such.
    Lifeline,
    /// The same for a supervisor that has adopted us: with a keeper that is its own.
    RenewLifeline,
    /// Begin to move connections.
    Move(Migrate),
    /// Say that no connection is moved.
    DeclineMove(Side),
    /// Begin to carry on what dead workers left.
    Recover(Recover),
    /// Say that nothing is carried on.
    DeclineRecovery(Recover),
    /// Close the channel to whoever called.
    HangUp,
    /// End the process with this code.
    Exit(u8),
    /// Tell the operator.
    Warn(String),
}

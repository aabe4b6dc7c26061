//! When connections may leave for another worker, come from one, or be carried on.
//!
//! Giving is possible as long as there are connections, also while draining: what has moved need
//! not be waited for. Taking is for a worker that will keep what it takes.

use baton_handoff::message::{Migrate, Recover, Side};

use super::{Action, Lifecycle, Phase};

impl Lifecycle {
    pub(super) fn migrate(&mut self, migrate: Migrate) -> Vec<Action> {
        let side = migrate.side;
        vec![match (self.phase, side) {
            (Phase::Serving(_) | Phase::Quiesced(_), Side::Give | Side::Take)
            | (Phase::Retiring { .. }, Side::Give) => Action::Move(migrate),
            (Phase::Booting | Phase::Idle | Phase::Done, Side::Give | Side::Take)
            | (Phase::Retiring { .. }, Side::Take) => Action::DeclineMove(side),
        }]
    }

    pub(super) fn recover(&mut self, recover: Recover) -> Vec<Action> {
        vec![match self.phase {
            Phase::Serving(_) | Phase::Quiesced(_) => Action::Recover(recover),
            Phase::Booting | Phase::Idle | Phase::Retiring { .. } | Phase::Done => {
                Action::DeclineRecovery(recover)
            }
        }]
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use baton_handoff::message::{Dead, Drain, Generation, Prepare, ToSupervisor, WorkerId};
    use baton_handoff::message::{Migrated, Plan, Recovered};

    use super::*;
    use crate::flow::Moment;
    use crate::lifecycle::{Compiled, Event};

    const NOW: Moment = Moment(1);

    fn idle() -> Lifecycle {
        let mut machine = Lifecycle::new();
        machine.on(Event::Hello, NOW);
        machine
    }

    fn serving() -> Lifecycle {
        let mut machine = idle();
        let generation = Generation(1);
        let prepare = Prepare { generation, source: String::new(), config: Vec::new() };
        machine.on(Event::Prepare { prepare, retired: 0 }, NOW);
        let plan = Plan { generation, listeners: Vec::new(), unchanged: false };
        let compiled = Compiled::Good { plan, held: Default::default() };
        machine.on(Event::Compiled(generation, compiled), NOW);
        machine.on(Event::Listeners { generation, keys: Vec::new(), last: true }, NOW);
        machine.on(Event::Activate(generation), NOW);
        machine
    }

    fn quiesced() -> Lifecycle {
        let mut machine = serving();
        machine.on(Event::Quiesce, NOW);
        machine
    }

    fn retiring() -> Lifecycle {
        let mut machine = serving();
        let timeout_ms = u64::try_from(Duration::from_secs(60).as_millis()).unwrap();
        machine.on(Event::Drain(Drain { timeout_ms }), NOW);
        machine
    }

    fn migrate(side: Side) -> Migrate {
        Migrate { side, other: WorkerId(2), timeout_ms: 1000 }
    }

    fn moves(mut machine: Lifecycle, side: Side) -> bool {
        match machine.on(Event::Migrate(migrate(side)), NOW).as_slice() {
            [Action::Move(asked)] => *asked == migrate(side),
            [Action::DeclineMove(asked)] if *asked == side => false,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn whoever_serves_or_has_served_gives_and_takes() {
        for side in [Side::Give, Side::Take] {
            assert!(moves(serving(), side) && moves(quiesced(), side));
        }
    }

    #[test]
    fn a_draining_worker_gives_what_it_has_and_takes_nothing() {
        assert!(moves(retiring(), Side::Give));
        assert!(!moves(retiring(), Side::Take));
    }

    #[test]
    fn a_worker_that_never_served_has_no_part_in_it() {
        assert!(!moves(idle(), Side::Give));
        assert!(!moves(Lifecycle::new(), Side::Take));
    }

    #[test]
    fn the_dead_are_left_to_whoever_stays() {
        let recover = Recover { dead: vec![Dead { worker: WorkerId(1), since_ms: 3 }] };
        for mut machine in [serving(), quiesced()] {
            let actions = machine.on(Event::Recover(recover.clone()), NOW);
            assert_eq!(actions, [Action::Recover(recover.clone())]);
        }
        for mut machine in [idle(), retiring()] {
            let actions = machine.on(Event::Recover(recover.clone()), NOW);
            assert_eq!(actions, [Action::DeclineRecovery(recover.clone())]);
        }
    }

    #[test]
    fn what_came_of_it_is_told_in_every_phase_but_the_last() {
        let moved = ToSupervisor::Migrated(Migrated { over: true, ..Migrated::default() });
        let recovered = ToSupervisor::Recovered(Recovered::default());
        for (mut machine, message) in [(retiring(), moved.clone()), (serving(), recovered)] {
            let actions = machine.on(Event::Report(message.clone()), NOW);
            assert_eq!(actions, [Action::Send(message)]);
        }
        let mut machine = serving();
        machine.on(Event::Broken, NOW);
        assert_eq!(machine.on(Event::Report(moved), NOW), []);
    }
}

//! What a worker of the world is like.

/// How a worker takes one kind of message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Habit {
    Answers,
    Ignores,
    Dies,
}

/// What it says to an offered configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum Opinion {
    Wants,
    Unchanged,
    Refuses(Vec<String>),
    Doubles,
    Ignores,
    Dies,
}

/// The character of a worker.
#[derive(Debug, Clone)]
pub(in super::super) struct Habits {
    pub(in super::super) hello: Habit,
    pub(in super::super) prepare: Opinion,
    pub(in super::super) listeners: Habit,
    pub(in super::super) activate: Habit,
    pub(in super::super) quiesce: Habit,
    pub(in super::super) drain: Habit,
    pub(in super::super) ping: Habit,
    pub(in super::super) term: Habit,
    pub(in super::super) migrate: Habit,
    pub(in super::super) recover: Habit,
    /// The newest protocol it speaks. From 2 on it sends its lifeline as well.
    pub(in super::super) protocol: u16,
}

impl Default for Habits {
    fn default() -> Self {
        Self {
            hello: Habit::Answers,
            prepare: Opinion::Wants,
            listeners: Habit::Answers,
            activate: Habit::Answers,
            quiesce: Habit::Answers,
            drain: Habit::Answers,
            ping: Habit::Answers,
            term: Habit::Answers,
            migrate: Habit::Answers,
            recover: Habit::Answers,
            protocol: 2,
        }
    }
}

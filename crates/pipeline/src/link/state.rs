//! The states of a link and the effect of each event. Pure: a table of states and events.

use thiserror::Error;

/// State of a link, which decides whether it gets new work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkState {
    /// The link gets new work.
    Serving,
    /// A reply is overdue. The link gets no new work until bytes arrive, and another connection is
    /// tried.
    Silent,
    /// The link gets no new work, and closes when no load is queued or in flight.
    Retiring,
    /// A reply is overdue, and the server answers on another connection: the reply will not come,
    /// and the link closes.
    Abandoned,
    /// The connection has ended.
    Closed,
}

/// Something that happens to a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A reply is overdue.
    ReplyOverdue,
    /// Bytes arrived after a reply was overdue.
    BytesArrived,
    /// A newer connection has shown that the server runs commands.
    OtherLinkAnswered,
    /// The node replaces its connections.
    Replaced,
    /// The link was idle for long, and the other links are enough.
    NotNeeded,
    /// The connection requests work while commands are queued or in flight.
    TurnWithLoad,
    /// The connection requests work while no load is queued or in flight.
    TurnWithoutLoad,
    /// The connection has ended.
    Ended,
}

/// Reaction of the node or the connection to an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// No reaction.
    Nothing,
    /// Unwritten groups return to the node, which connects again if no other link serves.
    ReturnQueue,
    /// The connection is woken, so that it learns its new state.
    Wake,
    /// The connection closes.
    Close(CloseReason),
    /// The node reports the loss of a link that was still in use.
    ReportLoss,
}

/// Reason why a node closes a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum CloseReason {
    #[error("replaced")]
    Retired,
    #[error("silent while the server answers others")]
    Abandoned,
    #[error("idle and not needed")]
    NotNeeded,
}

/// Returns the state of a link after an event, and the reaction.
///
/// An abandoned link may serve again: the arriving bytes were in transit when it was abandoned.
#[inline]
pub(crate) fn next_state(standing: LinkState, event: Event) -> (LinkState, Effect) {
    use LinkState::{Abandoned, Closed, Retiring, Serving, Silent};
    match (standing, event) {
        (Closed, _) => (Closed, Effect::Nothing),
        (Retiring, Event::Ended) => (Closed, Effect::Nothing),
        (_, Event::Ended) => (Closed, Effect::ReportLoss),

        (Serving, Event::ReplyOverdue) => (Silent, Effect::ReturnQueue),
        (Silent | Abandoned, Event::BytesArrived) => (Serving, Effect::Nothing),
        (Silent, Event::OtherLinkAnswered) => (Abandoned, Effect::Wake),
        (Serving, Event::Replaced) => (Retiring, Effect::Wake),
        (_, Event::NotNeeded) => (Retiring, Effect::Close(CloseReason::NotNeeded)),

        (Abandoned, Event::TurnWithLoad | Event::TurnWithoutLoad) => {
            (Abandoned, Effect::Close(CloseReason::Abandoned))
        }
        (Retiring, Event::TurnWithoutLoad) => (Retiring, Effect::Close(CloseReason::Retired)),

        (_, Event::TurnWithLoad | Event::TurnWithoutLoad)
        | (
            _,
            Event::ReplyOverdue | Event::BytesArrived | Event::OtherLinkAnswered | Event::Replaced,
        ) => (standing, Effect::Nothing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks what an event does to links that serve, are silent, retire, are abandoned and are
    /// closed, in this order.
    fn check(event: Event, expected: [(LinkState, Effect); 5]) {
        use LinkState::{Abandoned, Closed, Retiring, Serving, Silent};
        let found = [Serving, Silent, Retiring, Abandoned, Closed]
            .map(|standing| next_state(standing, event));
        assert_eq!(found, expected, "{event:?}");
    }

    #[test]
    fn each_event_does_to_each_standing_what_the_table_says() {
        use CloseReason as Reason;
        use Effect::{Close, Nothing, ReportLoss, ReturnQueue, Wake};
        use LinkState::{Abandoned, Closed, Retiring, Serving, Silent};

        let serving = (Serving, Nothing);
        let silent = (Silent, Nothing);
        let retiring = (Retiring, Nothing);
        let abandoned = (Abandoned, Nothing);
        let closed = (Closed, Nothing);
        check(
            Event::ReplyOverdue,
            [(Silent, ReturnQueue), silent, retiring, abandoned, closed],
        );
        check(
            Event::BytesArrived,
            [serving, serving, retiring, serving, closed],
        );
        check(
            Event::OtherLinkAnswered,
            [serving, (Abandoned, Wake), retiring, abandoned, closed],
        );
        check(
            Event::Replaced,
            [(Retiring, Wake), silent, retiring, abandoned, closed],
        );
        let not_needed = (Retiring, Close(Reason::NotNeeded));
        check(
            Event::NotNeeded,
            [not_needed, not_needed, not_needed, not_needed, closed],
        );
        let retired = (Retiring, Close(Reason::Retired));
        let ends = (Abandoned, Close(Reason::Abandoned));
        check(
            Event::TurnWithLoad,
            [serving, silent, retiring, ends, closed],
        );
        check(
            Event::TurnWithoutLoad,
            [serving, silent, retired, ends, closed],
        );
        let lost = (Closed, ReportLoss);
        check(Event::Ended, [lost, lost, closed, lost, closed]);
    }
}

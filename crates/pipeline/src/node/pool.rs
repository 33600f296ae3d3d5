//! The connections of one node and the groups that wait for them: assigns groups, and decides
//! whether another connection is needed.

use std::collections::VecDeque;
use std::time::Duration;

use fastrand::Rng;

use super::{GroupQueue, Link};
use crate::batch::Load;
use crate::call::CallGroup;
use crate::config::Config;
use crate::link::{CloseReason, LinkEffect, LinkEvent, LinkId, LinkReport};
use crate::node::selection;

/// Bytes from which a call for one node is large. Redis reads 16 KiB of a client before it serves
/// the next client, so a small call that shares a connection with a large one waits for several
/// rounds.
const LARGE_CALL_BYTES: usize = 64 * 1024;

/// The connections of one node, and the groups that wait for them.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Oldest first.
    links: Vec<Link>,
    next_link: u64,
    queue: GroupQueue,
    /// Large groups that wait for the connection that is reserved for them.
    large: GroupQueue,
    /// The connection for large groups. If there are others, no other groups go to it.
    reserved: Option<LinkId>,
    search_space: usize,
    max_in_flight: Load,
    max_connections: usize,
    rng: Rng,
}

/// Whether the connections are enough for the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Demand {
    Met,
    /// Another connection is worth its cost.
    Another,
}

/// The connections that a group may go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkChoice {
    Any,
    Reserved(LinkId),
    AllBut(LinkId),
}

impl Pool {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            links: Vec::new(),
            next_link: 0,
            queue: GroupQueue::default(),
            large: GroupQueue::default(),
            reserved: None,
            search_space: config.search_space,
            max_in_flight: Load {
                commands: config.in_flight_commands,
                bytes: config.in_flight_bytes,
            },
            max_connections: config.max_connections,
            rng: Rng::new(),
        }
    }

    /// Adds a connection.
    pub(crate) fn open(&mut self) -> LinkId {
        let id = LinkId(self.next_link);
        self.next_link += 1;
        self.links.push(Link::new(id));
        id
    }

    fn link(&mut self, id: LinkId) -> &mut Link {
        self.links
            .iter_mut()
            .find(|link| link.id == id)
            .expect("a link lives as long as its connection")
    }

    /// Applies an event to a link, and its effect to the queues.
    pub(crate) fn apply(&mut self, id: LinkId, event: LinkEvent) -> LinkEffect {
        let link = self.link(id);
        let effect = link.apply(event);
        match effect {
            LinkEffect::Wake => link.wake(),
            LinkEffect::ReturnQueue => {
                let queue = link.empty_queue();
                self.requeue(queue);
            }
            LinkEffect::Nothing | LinkEffect::Close(_) | LinkEffect::ReportLoss => {}
        }
        effect
    }

    /// Applies an event to all links.
    pub(crate) fn apply_to_all(&mut self, event: LinkEvent) {
        self.apply_where(|_| true, event);
    }

    /// Replaces the links that were opened longer than `age` ago.
    pub(crate) fn replace_older_than(&mut self, age: Duration) {
        self.apply_where(|link| link.opened.elapsed() >= age, LinkEvent::Replaced);
    }

    fn apply_where(&mut self, selects: impl Fn(&Link) -> bool, event: LinkEvent) {
        let selected: Vec<LinkId> = self
            .links
            .iter()
            .filter(|link| selects(link))
            .map(|link| link.id)
            .collect();
        for id in selected {
            self.apply(id, event);
        }
    }

    /// Retires a link if no load is queued or in flight on it and more than `min` links serve.
    /// Returns whether it did; the link then gets no more groups.
    pub(crate) fn retire_idle(&mut self, id: LinkId, min: usize) -> bool {
        let serving = self.serving().count();
        if self.link(id).load != Load::default() || serving <= min {
            return false;
        }
        matches!(self.apply(id, LinkEvent::NotNeeded), LinkEffect::Close(_))
    }

    /// Removes a link whose connection has ended. Returns it and the reaction that the node must
    /// take.
    pub(crate) fn remove(&mut self, id: LinkId) -> (Link, LinkEffect) {
        let effect = self.apply(id, LinkEvent::Ended);
        let at = self
            .links
            .iter()
            .position(|link| link.id == id)
            .expect("a link is removed once");
        (self.links.remove(at), effect)
    }

    /// Returns whether a reply is overdue at any link.
    pub(crate) fn has_silent(&self) -> bool {
        self.links.iter().any(Link::is_silent)
    }

    pub(crate) fn serving(&self) -> impl Iterator<Item = &Link> {
        self.links.iter().filter(|link| link.is_serving())
    }

    pub(crate) fn is_serving(&self) -> bool {
        self.serving().next().is_some()
    }

    /// Returns the load that waits for a connection.
    pub(crate) fn waiting(&self) -> Load {
        let mut waiting = self.queue.load();
        waiting.add(self.large.load());
        waiting
    }

    /// Returns the age of the oldest pending reply.
    pub(crate) fn oldest_pending(&self) -> Duration {
        let oldest = self.links.iter().filter_map(|link| link.oldest).min();
        oldest.map_or(Duration::ZERO, |oldest| oldest.elapsed())
    }

    /// Makes room for `more` within `bound`: drops groups at the head of the queue whose callers
    /// have left.
    pub(crate) fn drop_abandoned(&mut self, more: Load, bound: Load) {
        while !self.waiting().fits(more, bound) {
            if !self.queue.drop_abandoned() && !self.large.drop_abandoned() {
                return;
            }
        }
    }

    /// Assigns the groups of one call to connections with room, or queues them.
    pub(crate) fn assign(
        &mut self,
        groups: impl Iterator<Item = CallGroup>,
        total: Load,
    ) -> Demand {
        let is_large = total.bytes > LARGE_CALL_BYTES;
        let link_choice = self.link_choice(is_large);
        let is_shared = is_large
            && link_choice == LinkChoice::Any
            && self.links.iter().any(|link| link.load.commands > 0);
        match self.room_for_all(total, link_choice) {
            Some(at) => groups.for_each(|group| {
                let load = group.load();
                self.links[at].push(group, load);
            }),
            None => groups.for_each(|group| self.assign_group(group, link_choice)),
        }
        // The next large call gets the new connection. This call would wait longer for it than it
        // takes here.
        if is_shared && self.max_connections > 1 {
            return Demand::Another;
        }
        self.demand(self.head_waited())
    }

    /// Returns an idle connection for a call with more commands than the bound of a connection.
    ///
    /// Otherwise the parts of the call would wait for replies to each other. The bound on bytes
    /// still holds.
    fn room_for_all(&self, total: Load, link_choice: LinkChoice) -> Option<usize> {
        if total.commands <= self.max_in_flight.commands
            || total.bytes > self.max_in_flight.bytes
            || self.waiting().commands > 0
        {
            return None;
        }
        self.links.iter().position(|link| {
            link_choice.allows(link.id) && link.is_serving() && link.load == Load::default()
        })
    }

    fn assign_group(&mut self, group: CallGroup, link_choice: LinkChoice) {
        let load = group.load();
        let queue = match link_choice {
            LinkChoice::Reserved(_) => &mut self.large,
            LinkChoice::Any | LinkChoice::AllBut(_) => &mut self.queue,
        };
        // Queued groups go first: otherwise a large one that fits nowhere could wait for ever.
        if queue.is_empty() {
            let accepts =
                |link: &Link| link_choice.allows(link.id) && link.accepts(load, self.max_in_flight);
            if let Some(at) =
                selection::select(&self.links, self.search_space, accepts, &mut self.rng)
            {
                return self.links[at].push(group, load);
            }
        }
        queue.push(group);
    }

    /// Returns the connections that a call may go to. The first large call that finds several
    /// connections reserves one of them for large calls.
    fn link_choice(&mut self, is_large: bool) -> LinkChoice {
        if is_large && self.reserved().is_none() && self.serving().nth(1).is_some() {
            // The youngest has the least load, because groups go to the oldest first.
            self.reserved = self.serving().last().map(|link| link.id);
        }
        match self.reserved() {
            Some(id) if is_large => LinkChoice::Reserved(id),
            Some(id) => LinkChoice::AllBut(id),
            None => LinkChoice::Any,
        }
    }

    /// Returns the connection reserved for large groups, if there is another one for the rest.
    fn reserved(&self) -> Option<LinkId> {
        let reserved = self.reserved?;
        let serves = self.serving().any(|link| link.id == reserved)
            && self.serving().any(|link| link.id != reserved);
        serves.then_some(reserved)
    }

    /// Gives a connection its queued groups and as many waiting ones as fit, after the released
    /// load is subtracted.
    ///
    /// # Errors
    /// The connection should close.
    pub(crate) fn take_groups(
        &mut self,
        report: &LinkReport<'_>,
        groups: &mut Vec<CallGroup>,
    ) -> Result<Demand, CloseReason> {
        let waited = self.head_waited();
        let reserved = self.reserved();
        let max_in_flight = self.max_in_flight;
        let Self {
            links,
            queue,
            large,
            ..
        } = self;
        let link = links
            .iter_mut()
            .find(|link| link.id == report.link)
            .expect("a link lives as long as its connection");
        link.on_report(report, groups)?;
        if !large.is_empty() && reserved.is_none_or(|id| id == link.id) {
            link.take_waiting(large, max_in_flight, groups);
        }
        if !queue.is_empty() && reserved.is_none_or(|id| id != link.id) {
            link.take_waiting(queue, max_in_flight, groups);
        }
        Ok(self.demand(waited))
    }

    /// Returns whether another connection is needed, if the head of the queue has `waited`.
    ///
    /// The wait of the head shows bursts, which a mean hides. The expected delay shows a queue that
    /// has just grown, and that may not be checked again before the next reply.
    fn demand(&self, waited: Duration) -> Demand {
        if waited.is_zero() && self.queue.is_empty() {
            return Demand::Met;
        }
        let serving = self.serving().count();
        let reply_times = self.serving().map(Link::expected_reply_time);
        let delay = waited.max(selection::queue_delay(
            self.queue.load(),
            self.max_in_flight,
            reply_times,
        ));
        if serving < self.max_connections && selection::is_worth_a_connection(delay) {
            Demand::Another
        } else {
            Demand::Met
        }
    }

    /// Returns how long the next group has waited for the present connections.
    ///
    /// The time before the last connection opened does not count: that connection may be enough.
    fn head_waited(&self) -> Duration {
        if self.queue.is_empty() {
            return Duration::ZERO;
        }
        let since_open = self.serving().map(|link| link.opened.elapsed()).min();
        self.queue
            .head_age()
            .min(since_open.unwrap_or(Duration::MAX))
    }

    /// Queues groups again that a connection had not taken.
    pub(crate) fn requeue(&mut self, groups: VecDeque<CallGroup>) {
        self.queue.requeue(groups);
        // The other connections may be idle by now, and an idle one requests work only when woken.
        self.links.iter().for_each(Link::wake);
    }

    /// Removes and returns all waiting groups, and all that connections have not taken.
    pub(crate) fn drain_unwritten(&mut self) -> impl Iterator<Item = CallGroup> + use<> {
        let placed: Vec<CallGroup> = self.links.iter_mut().flat_map(Link::empty_queue).collect();
        placed.into_iter().chain(self.drain())
    }

    /// Removes and returns all waiting groups.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = CallGroup> + use<> {
        self.queue.drain().chain(self.large.drain())
    }
}

impl LinkChoice {
    fn allows(self, link: LinkId) -> bool {
        match self {
            Self::Any => true,
            Self::Reserved(id) => id == link,
            Self::AllBut(id) => id != link,
        }
    }
}

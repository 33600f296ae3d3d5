//! Rules that the engine does not keep yet. Each is switched on with the repair that makes it true.

/// After a look, what a server remembers of a queue is what the store has.
pub(crate) const MEMORY_AGREES_AFTER_A_LOOK: bool = false;
/// A report that is repeated gets the jobs again that were handed over with the first answer.
pub(crate) const HAND_OVERS_ARE_TOLD_AGAIN: bool = false;
/// Rows without a workflow are removed when they are met.
pub(crate) const STALE_ROWS_GO: bool = false;
/// A worker that goes away during a report with a claim takes no job with it.
pub(crate) const REPORTERS_TAKE_NOTHING_WITH_THEM: bool = false;
/// The names of queues and workflows come back after the store has lost them.
pub(crate) const NAMES_COME_BACK: bool = true;
/// A server that is started with other settings on a store that lost everything finds what was acknowledged afterwards.
pub(crate) const PARTITIONS_COME_BACK: bool = true;
/// A job that is given back does not go to the same worker in the same call.
pub(crate) const NOT_BACK_TO_THE_GIVER: bool = false;
/// Entering a name does not undo a pause.
pub(crate) const NAMES_KEEP_PAUSES: bool = true;
/// Each lease of a job has a higher number than those before it.
pub(crate) const FENCES_GROW: bool = false;

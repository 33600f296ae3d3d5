//! Answers of the script.

use tidegate_pipeline::{Outcome, Reply};

use super::ScriptCall;
use crate::codec::{Applied, StoreError};
use crate::store::redis::read::reply::{self, unexpected};

impl ScriptCall<'_> {
    /// The outcome of each change, with its position among all changes.
    pub(in crate::store::redis) fn outcomes(
        &self,
        answer: &Reply,
    ) -> Result<Vec<(usize, Applied)>, StoreError> {
        match answer {
            Reply::Integer(_) => Ok(self
                .positions
                .iter()
                .map(|&position| (position, Applied::Done))
                .collect()),
            Reply::Array(each) if each.len() == self.states.len() => {
                let each = each.iter().zip(&self.states).zip(&self.positions);
                each.map(|((element, key), &position)| {
                    Ok((
                        position,
                        self.parse_outcome(key, element.as_ref().ok(), answer)?,
                    ))
                })
                .collect()
            }
            _ => Err(unexpected("what became of the changes", answer)),
        }
    }

    fn parse_outcome(
        &self,
        key: &str,
        element: Option<&Reply>,
        answer: &Reply,
    ) -> Result<Applied, StoreError> {
        match element {
            Some(Reply::Integer(0)) => Ok(Applied::Done),
            Some(Reply::Integer(_)) => Ok(Applied::MustReload),
            Some(Reply::Bulk(id)) => Ok(Applied::KeyTaken(reply::id(id)?)),
            Some(Reply::Array(later)) if matches!(later.first(), Some(Ok(Reply::Integer(_)))) => {
                Ok(Applied::Behind(reply::newer_state(key, later)?))
            }
            Some(state @ Reply::Array(_)) if self.small => {
                Ok(Applied::Conflict(reply::small_in_array(state)?))
            }
            Some(state @ Reply::Array(_)) => Ok(Applied::Conflict(reply::state(key, state)?)),
            _ => Err(unexpected("what became of each change", answer)),
        }
    }
}

/// The script adds this to the number of changes if Redis forbade publishing.
const NOT_ANNOUNCED: u64 = 1 << 20;

/// Whether Redis did not let a call publish its message.
pub(in crate::store::redis) fn was_not_announced(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Reply(Reply::Integer(number)) if number.unsigned_abs() >= NOT_ANNOUNCED)
}

/// Whether a call that created workflows found none in its partition.
pub(in crate::store::redis) fn found_empty_partition(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Reply(Reply::Integer(..0)))
}

//! Several calls at the same time.

use std::future::poll_fn;
use std::task::Poll;

/// What comes of all of these, in their order.
pub(super) async fn together<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut each: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    poll_fn(|context| {
        for (future, output) in each.iter_mut().filter(|(_, output)| output.is_none()) {
            if let Poll::Ready(ready) = future.as_mut().poll(context) {
                *output = Some(ready);
            }
        }
        if each.iter().all(|(_, output)| output.is_some()) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    each.into_iter().filter_map(|(_, output)| output).collect()
}

//! Operations of the API: one row each, which makes the route, the dispatch and the entry of
//! `docs/openapi.json`.

/// Turns the rows of `table.rs` into `Operation`, `ROUTES`, `dispatch` and, for tests,
/// `descriptions`.
///
/// A row has this form. Its doc comment is the summary and the description in `docs/openapi.json`:
///
/// ```text
/// Operation: METHOD "path" ("schema of the body") -> answers,
///     ROLE, store that it needs, [query parameters; headers], [problems] => handler;
/// ```
///
/// A body may be left out if its schema ends in `?`. A handler of an operation with query
/// parameters reads them itself; other operations refuse all parameters. What a handler takes
/// besides the request is written after its name.
macro_rules! routes {
    ($(
        $(#[doc = $doc:literal])*
        $operation:ident: $method:ident $template:literal ($($body:literal)?) -> $answers:expr,
            $role:ident, $needs:ident,
            [$($parameter:ident),* $(; $($header:ident),*)?], [$($problem:ident),*]
            => $($handler:ident)::+ $(($argument:expr))?;
    )*) => {
        enum Operation { $($(#[doc = $doc])* $operation,)* }

        const OPERATIONS: &[Operation] = &[$(Operation::$operation),*];

        /// Routes of all operations. Those of workers come first, because they are called most.
        pub(crate) static ROUTES: &[Route] = &[$(Route {
            method: Method::$method,
            template: $template,
            role: $role,
            needs: StoreRequirement::$needs,
            has_parameters: !<[&str]>::is_empty(&[$(stringify!($parameter)),*]),
        }),*];

        /// Answers a request by the handler of its route. Each future is boxed by itself: a call
        /// moves the future of its own handler, and not one that has room for the largest.
        pub(crate) async fn dispatch(ask: &RequestContext<'_>) -> HandlerResult {
            match OPERATIONS[ask.matched.index] {
                $(Operation::$operation => Box::pin($($handler)::+(ask $(, $argument)?)).await,)*
            }
        }

        /// Description of each route of `ROUTES` for `docs/openapi.json`.
        #[cfg(test)]
        pub(crate) fn descriptions() -> Vec<Description> {
            vec![$(Description {
                operation: stringify!($operation),
                doc: &[$($doc),*],
                body: [$($body)?].first().copied(),
                answers: $answers,
                parameters: &[$($parameter,)* $($($header),*)?],
                problems: &[$(Code::$problem),*],
            }),*]
        }
    };
}

mod openapi;
mod table;

#[cfg(test)]
pub(crate) use table::descriptions;
pub(crate) use table::{ROUTES, dispatch};

//! Codes of problems. They are stable, because programs rely on them.

use axum::http::StatusCode;

/// Makes the enum of all codes from rows with their status, word and title.
macro_rules! codes {
    ($($(#[$attribute:meta])* $code:ident: $status:ident $word:literal, $title:literal;)*) => {
        /// The kind of a problem.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Code { $($(#[$attribute])* $code,)* }

        impl Code {
            #[cfg(test)]
            pub(crate) const ALL: &[Self] = &[$(Self::$code),*];

            /// The stable word in answers.
            pub(crate) const fn word(self) -> &'static str {
                match self { $(Self::$code => $word,)* }
            }

            pub(crate) const fn status(self) -> StatusCode {
                match self { $(Self::$code => StatusCode::$status,)* }
            }

            /// Meaning of the code, for people.
            pub(crate) const fn title(self) -> &'static str {
                match self { $(Self::$code => $title,)* }
            }
        }
    };
}

codes! {
    WorkflowNotFound: NOT_FOUND "workflow_not_found", "The workflow does not exist";
    JobNotFound: NOT_FOUND "job_not_found", "The workflow has no job of this name";
    QueueNotFound: NOT_FOUND "queue_not_found", "The queue does not exist";
    OverrideNotFound: NOT_FOUND "override_not_found", "There is no such override of limits";
    DescriptorNotFound: NOT_FOUND "descriptor_not_found", "The configuration of rate limits has no such descriptor";
    AlreadyStarted: CONFLICT "already_started", "The workflow was already started";
    StateConflict: CONFLICT "state_conflict", "The current state does not allow this";
    LeaseLost: CONFLICT "lease_lost", "The lease was lost";
    IdempotencyMismatch: CONFLICT "idempotency_mismatch", "The idempotency key belongs to another definition";
    #[cfg_attr(not(test), expect(dead_code, reason = "no call needs a later format than the store has"))]
    MigrationNeeded: CONFLICT "migration_needed", "The store is of an earlier version";
    TooManyOverrides: CONFLICT "too_many_overrides", "No more overrides of limits are kept";
    InvalidJson: BAD_REQUEST "invalid_json", "The body is not JSON";
    InvalidField: UNPROCESSABLE_ENTITY "invalid_field", "A field or parameter is not valid";
    GraphCycle: UNPROCESSABLE_ENTITY "graph_cycle", "Jobs depend on each other in a cycle";
    UnknownDependency: UNPROCESSABLE_ENTITY "unknown_dependency", "A job depends on a job that does not exist";
    DuplicateJobName: UNPROCESSABLE_ENTITY "duplicate_job_name", "Two jobs have the same name";
    InvalidDefinition: UNPROCESSABLE_ENTITY "invalid_definition", "The definition is not valid";
    InvalidCursor: BAD_REQUEST "invalid_cursor", "The cursor is not valid";
    PayloadTooLarge: PAYLOAD_TOO_LARGE "payload_too_large", "The request or the answer is too large";
    RequestTimeout: REQUEST_TIMEOUT "request_timeout", "The request body arrived too slowly";
    Unauthorized: UNAUTHORIZED "unauthorized", "A valid token is required";
    Forbidden: FORBIDDEN "forbidden", "This is not allowed";
    Overloaded: SERVICE_UNAVAILABLE "overloaded", "The server is overloaded";
    StoreUnavailable: SERVICE_UNAVAILABLE "store_unavailable", "The store is not available";
    NoConfiguration: SERVICE_UNAVAILABLE "no_configuration", "No configuration of rate limits is loaded";
    ShuttingDown: SERVICE_UNAVAILABLE "shutting_down", "The server is shutting down";
    NotFound: NOT_FOUND "not_found", "This path does not exist";
    MethodNotAllowed: METHOD_NOT_ALLOWED "method_not_allowed", "The path does not have this method";
    Internal: INTERNAL_SERVER_ERROR "internal", "The server has a fault";
}

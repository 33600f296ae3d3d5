//! Graphs of jobs. Nothing is here yet: the crate holds the place, and the walls, of the workflow engine.
//!
//! **Invariant:** knows nothing of Envoy, HTTP, the environment or clocks; reaches Redis only through `tidegate-pipeline`.

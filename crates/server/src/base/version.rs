//! The version of the program.

/// The version of this build, as `0.1.0+4f2a91c`. The part after the `+` is the git revision, which
/// a build from a source archive does not have.
pub const VERSION: &str = env!("BUILD_VERSION");

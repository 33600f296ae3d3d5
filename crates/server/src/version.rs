//! The version of the program.

/// The version of this build, as `0.1.0+4f2a91c`: what follows the `+` is the revision in git, which a source archive does not have.
pub const VERSION: &str = env!("BUILD_VERSION");

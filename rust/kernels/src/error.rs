//! The one error of the kernels.

use std::fmt;

/// An index, a length or a setting that the kernels cannot work with; says what was expected and what came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidArgument(pub String);

impl fmt::Display for InvalidArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidArgument {}

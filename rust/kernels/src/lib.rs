//! CPU kernels of Pagurid.

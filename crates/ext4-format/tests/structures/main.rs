//! The codecs on volumes by mke2fs, on damaged ones and on rebuilt directories.

mod common;
mod hostile;
mod htree_leaf;
mod images;
mod rebuild;

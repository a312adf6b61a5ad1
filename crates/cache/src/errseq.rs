//! Write errors of an inode, each seen once by every open file (the kernel's errseq_t), and for as long as a failed
//! page has not landed.

/// A sequence of errors.
#[derive(Default)]
pub struct ErrSeq {}
impl ErrSeq {
    /// Records a failure.
    pub fn set(&self, errno: i32) {
        let _ = errno;
        todo!()
    }
    /// A cursor for a new observer; an error nobody has seen yet is reported to it.
    pub fn sample(&self) -> u64 {
        todo!()
    }
    /// The error that came after `cursor`, which moves on.
    pub fn check(&self, cursor: &mut u64) -> Option<i32> {
        let _ = cursor;
        todo!()
    }
}

//! The reader of a fuzzer's input. After the end it returns zeroes, so every input is valid.

/// The rest of an input.
pub struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// One byte.
    pub fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }
    /// Two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }
    /// Four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }
    /// Eight bytes.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }
    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let part = self.slice(N);
        array[..part.len()].copy_from_slice(part);
        array
    }
    /// At most `len` bytes.
    pub fn slice(&mut self, len: usize) -> &'a [u8] {
        let (part, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        part
    }
    /// A number below `bound`, which is positive.
    pub fn below(&mut self, bound: usize) -> usize {
        self.u32() as usize % bound
    }
    /// A number. Limits of the format are frequent.
    pub fn number(&mut self) -> u64 {
        const LIMITS: [u64; 15] = [
            0,
            1,
            2,
            4,
            8,
            12,
            0x7fff,
            0x8000,
            0xffff,
            0x7fff_ffff,
            0xffff_ffff,
            1 << 32,
            4096,
            4095,
            u64::MAX,
        ];
        match self.u8() {
            nth @ 0..=14 => LIMITS[usize::from(nth)],
            15..=63 => u64::from(self.u8()),
            64..=127 => u64::from(self.u16()),
            128..=191 => u64::from(self.u32()),
            _ => self.u64(),
        }
    }
}

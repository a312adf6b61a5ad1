//! The buffer that a disk fills behind a read while its actuator has nothing else to do.
//!
//! One stream is kept. It is *live* while the head still follows it, and remembers what it has read
//! when the head is called away.

use super::disk::Platter;
use super::model::Ns;

#[derive(Default)]
pub(super) struct Lookahead {
    stream: Option<Stream>,
}

struct Stream {
    /// First byte that the buffer holds.
    start: u64,
    /// The byte that was under the head at `since`; all before it is in the buffer from then on.
    from: u64,
    since: Ns,
    /// Where reading ahead ends.
    limit: u64,
    /// End of what the buffer holds, once the head was called away.
    left_at: Option<u64>,
}

impl Stream {
    /// End of what the buffer holds at `now`.
    fn end(&self, platter: Platter, now: Ns) -> u64 {
        self.left_at.unwrap_or_else(|| {
            let passed = platter.passed(now.saturating_sub(self.since));
            (self.from + passed).min(self.limit)
        })
    }
}

impl Lookahead {
    /// Bytes from `offset` on that the buffer holds at `now`.
    pub(super) fn holds(&self, platter: Platter, now: Ns, offset: u64) -> u64 {
        match &self.stream {
            Some(s) if now >= s.since && offset >= s.start => {
                s.end(platter, now).saturating_sub(offset)
            }
            _ => 0,
        }
    }

    /// The byte under the head at `now`, where it follows a stream.
    pub(super) fn head(&self, platter: Platter, now: Ns) -> Option<u64> {
        let live = self.stream.as_ref().filter(|s| s.left_at.is_none());
        live.map(|s| s.end(platter, now))
    }

    /// Where a read that comes at `now` goes on with the live stream: when the head is at its first
    /// byte (or was) and when it has passed its last one.
    pub(super) fn read_on(
        &self,
        platter: Platter,
        now: Ns,
        offset: u64,
        len: u64,
    ) -> Option<(Ns, Ns)> {
        let s = self.stream.as_ref().filter(|s| s.left_at.is_none())?;
        let passes = |at: u64| s.since + platter.transfer(at.saturating_sub(s.from));
        let goes_on = now <= passes(s.limit) || offset + len <= s.limit;
        ((s.start..=s.limit).contains(&offset) && goes_on)
            .then(|| (passes(offset).max(now), passes(offset + len).max(now)))
    }

    /// The head has read `offset..end` by `now` and goes on to at most `ahead` bytes more, before
    /// `capacity`.
    pub(super) fn follow(&mut self, now: Ns, offset: u64, end: u64, ahead: u64, capacity: u64) {
        let start = match &self.stream {
            Some(s) if s.left_at.is_none() && (s.start..=s.limit).contains(&offset) => {
                s.start.max(end.saturating_sub(ahead)).min(offset)
            }
            _ => offset,
        };
        self.stream = Some(Stream {
            start,
            from: end,
            since: now,
            limit: (end + ahead).min(capacity).max(end),
            left_at: None,
        });
    }

    /// The head is called away.
    pub(super) fn leave(&mut self, platter: Platter, now: Ns) {
        if let Some(s) = &mut self.stream {
            s.left_at = Some(s.end(platter, now));
        }
    }
}

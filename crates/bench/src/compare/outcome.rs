//! The results of a comparison.

use super::image::Images;
use super::peer::Peer;
use crate::Report;
use crate::fsmark::Fsync;
use serde::{Deserialize, Serialize};

/// The results of a comparison.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// The workload's name.
    pub workload: String,
    /// The workload's parameters, in one line.
    pub description: String,
    /// The unit that its phases count.
    pub unit: String,
    /// Rounds of each row.
    pub rounds: u16,
    /// The images that the file systems were on.
    pub images: Images,
    /// Size of an image.
    pub image_bytes: u64,
    /// SluiceFS first.
    pub targets: Vec<Row>,
    /// The rates of SluiceFS as multiples of its peers', by the way each calls fsync. Empty if only
    /// blocking fsync was measured.
    #[serde(default)]
    pub ratios: Vec<Ratio>,
    /// The rows that could not be measured.
    pub left_out: Vec<LeftOut>,
}

/// One file system with one way to call fsync.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// The file system.
    pub peer: Peer,
    /// How the workload called fsync.
    pub fsync: Fsync,
    /// An explanation of its figures.
    pub note: Option<String>,
    /// Whether its data was durable in the end. Otherwise the time for that is missing in the
    /// totals of the report.
    pub durable: bool,
    /// The median round.
    pub report: Report,
    /// Files per second of each round, until all data was durable.
    pub files_per_sec: Vec<f64>,
    /// The rate of the first row of SluiceFS in process as a multiple of this row's.
    pub ratio: Option<f64>,
}

/// The rate of one row of SluiceFS as a multiple of a peer's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The name of the row of SluiceFS.
    pub ours: String,
    /// The peer.
    pub peer: Peer,
    /// The multiple of the peer's fastest row.
    pub best: f64,
    /// How the fastest row calls fsync.
    pub best_fsync: Fsync,
    /// The multiple of the peer's row with blocking fsync.
    pub blocking: Option<f64>,
}

/// A row that could not be measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LeftOut {
    /// Its name.
    pub name: String,
    /// The missing requirement, or the error.
    pub why: String,
}

impl Outcome {
    /// Whether a reader and a writer were measured. Then a rate of files means nothing.
    pub fn is_of_interfere(&self) -> bool {
        let mut rows = self.targets.iter();
        rows.any(|row| row.report.interference.is_some())
    }

    /// Whether syncs at once were measured. Their times are the result, and not a rate of files.
    pub fn is_of_storms(&self) -> bool {
        let mut rows = self.targets.iter();
        rows.any(|row| row.report.storms.is_some())
    }

    /// Computes all ratios from the rows.
    pub(super) fn compare(&mut self) {
        if self.is_of_interfere() || self.is_of_storms() {
            return;
        }
        let ours = self.targets.iter().find(|row| row.peer == Peer::InProcess);
        if let Some(ours) = ours.map(|row| row.report.files_per_sec) {
            for row in self.targets.iter_mut().filter(|row| row.durable) {
                row.ratio = Some(ours / row.report.files_per_sec);
            }
        }
        if self.targets.iter().all(|row| row.fsync == Fsync::Blocking) {
            return;
        }
        let ours = || self.targets.iter().filter(|row| row.peer.is_ours());
        let pairs = Peer::ALL
            .into_iter()
            .filter(|peer| !peer.is_ours())
            .flat_map(|peer| ours().map(move |row| (peer, row)));
        self.ratios = pairs
            .filter_map(|(peer, row)| ratio(row, peer, &self.targets))
            .collect();
    }
}

/// Compares a row of SluiceFS with the rows of a peer.
fn ratio(ours: &Row, peer: Peer, rows: &[Row]) -> Option<Ratio> {
    let theirs = || rows.iter().filter(|row| row.peer == peer && row.durable);
    let best = theirs().max_by(|a, b| rate(a).total_cmp(&rate(b)))?;
    let blocking = theirs().find(|row| row.fsync == Fsync::Blocking);
    Some(Ratio {
        ours: ours.name.clone(),
        peer,
        best: rate(ours) / rate(best),
        best_fsync: best.fsync,
        blocking: blocking.map(|blocking| rate(ours) / rate(blocking)),
    })
}

fn rate(row: &Row) -> f64 {
    row.report.files_per_sec
}

#[cfg(test)]
impl Outcome {
    /// An outcome with these rows: file system, way to call fsync, files per second.
    pub(crate) fn with_rows(rows: &[(Peer, Fsync, f64)]) -> Outcome {
        let row = |&(peer, fsync, files_per_sec): &(Peer, Fsync, f64)| Row {
            name: peer.row_name(fsync),
            peer,
            fsync,
            note: None,
            durable: true,
            report: Report {
                files_per_sec,
                ..Report::default()
            },
            files_per_sec: vec![files_per_sec],
            ratio: None,
        };
        let mut outcome = Outcome {
            workload: "fsmark".into(),
            description: "work".into(),
            unit: "files".into(),
            rounds: 1,
            images: Images::Sparse,
            image_bytes: 1 << 30,
            targets: rows.iter().map(row).collect(),
            ratios: Vec::new(),
            left_out: Vec::new(),
        };
        outcome.compare();
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_of_ours_is_compared_with_the_best_and_the_blocking_row_of_each_peer() {
        let outcome = Outcome::with_rows(&[
            (Peer::InProcess, Fsync::Bulk, 1000.0),
            (Peer::InProcess, Fsync::Blocking, 100.0),
            (Peer::Ext4, Fsync::Async, 200.0),
            (Peer::Ext4, Fsync::Blocking, 20.0),
            (Peer::Xfs, Fsync::Async, 10.0),
            (Peer::Xfs, Fsync::Blocking, 40.0),
        ]);
        let ratio = |ours, peer, best, best_fsync, blocking| Ratio {
            ours: Peer::InProcess.row_name(ours),
            peer,
            best,
            best_fsync,
            blocking: Some(blocking),
        };
        assert_eq!(
            outcome.ratios,
            [
                ratio(Fsync::Bulk, Peer::Ext4, 5.0, Fsync::Async, 50.0),
                ratio(Fsync::Blocking, Peer::Ext4, 0.5, Fsync::Async, 5.0),
                ratio(Fsync::Bulk, Peer::Xfs, 25.0, Fsync::Blocking, 25.0),
                ratio(Fsync::Blocking, Peer::Xfs, 2.5, Fsync::Blocking, 2.5),
            ]
        );
        assert_eq!(outcome.targets[2].ratio, Some(5.0));
    }

    #[test]
    fn rows_that_are_not_durable_have_no_ratio() {
        let rows = [
            (Peer::InProcess, Fsync::Bulk, 10.0),
            (Peer::Fuse2fs, Fsync::Blocking, 1.0),
        ];
        let mut outcome = Outcome::with_rows(&rows);
        outcome.targets[1].durable = false;
        outcome.targets[1].ratio = None;
        outcome.ratios.clear();
        outcome.compare();
        assert!(outcome.ratios.is_empty());
        assert_eq!(outcome.targets[1].ratio, None);
    }
}

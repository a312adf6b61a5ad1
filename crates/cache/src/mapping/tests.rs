use super::*;
use block::BufMut;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

const ALL: Range<PageIndex> = PageIndex::FIRST..PageIndex::END;
const LAST: PageIndex = PageIndex(u32::MAX - 1);
/// Pages of these tests.
const SIZE: PageSize = PageSize::KIB_2;
/// Bytes of a page.
const PAGE: u64 = SIZE.bytes();

fn pages(range: Range<u32>) -> Range<PageIndex> {
    PageIndex(range.start)..PageIndex(range.end)
}
fn page(byte: u8) -> Buf {
    BufMut::copy_of(&[byte; 64]).freeze()
}
fn mapping() -> (Arc<Budget>, Mapping) {
    let budget = Budget::new(1 << 30);
    (budget.clone(), Mapping::new(budget, SIZE))
}
fn take(mapping: &Mapping, range: Range<PageIndex>, max: usize) -> Vec<u32> {
    let mut out = Vec::new();
    assert_eq!(mapping.take_dirty(range, max, &mut out), out.len());
    out.iter().map(|page| page.index.0).collect()
}

#[test]
fn a_small_file_fits_a_cache_line() {
    assert!(size_of::<Mapping>() <= 64, "{}", size_of::<Mapping>());
}

#[test]
fn a_write_to_a_page_under_writeback_copies_it() {
    for others in [0, 5] {
        let (_, mapping) = mapping();
        mapping.store_dirty(PageIndex(7), page(1), Delalloc::Set);
        for other in 0..others {
            mapping.insert_clean(PageIndex(100 + other), page(9));
        }
        let mut out = Vec::new();
        mapping.take_dirty(ALL, 10, &mut out);
        let before = mapping
            .modify(PageIndex(7), Delalloc::Keep, |bytes| bytes[0] = 2)
            .unwrap();
        assert!(before.writeback && before.delalloc && !before.dirty);
        assert_eq!(out[0].buf[0], 1);
        assert_eq!(mapping.get(PageIndex(7)).unwrap()[0], 2);
        // The page is not picked again until the first write has completed.
        assert_eq!(mapping.next_dirty(PageIndex(0)), None);
        assert_eq!(take(&mapping, pages(0..100), 10), []);
        assert_eq!(mapping.end_writeback(pages(7..8)), 1);
        assert_eq!(mapping.next_dirty(PageIndex(0)), Some(PageIndex(7)));
        assert!(!mapping.state(PageIndex(7)).unwrap().delalloc);
        assert_eq!(take(&mapping, pages(0..100), 10), [7]);
        assert_eq!(mapping.fail_writeback(pages(0..100)), 1);
        assert_eq!((mapping.dirty_pages(), mapping.writeback_pages()), (1, 0));
    }
}

#[test]
fn has_unlanded_sees_a_page_between_dirty_and_writeback() {
    let (_, mapping) = mapping();
    mapping.store_dirty(PageIndex(0), page(1), Delalloc::Keep);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                assert_eq!(mapping.unlanded_pages(), 1);
            }
        });
        for _ in 0..200_000 {
            assert_eq!(take(&mapping, pages(0..1), 1), [0]);
            mapping.fail_writeback(pages(0..1));
        }
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn the_last_page_of_the_largest_file() {
    let (_, mapping) = mapping();
    mapping.store_dirty(LAST, page(1), Delalloc::Keep);
    mapping.store_dirty(PageIndex(0), page(1), Delalloc::Keep);
    assert_eq!(mapping.next_dirty(PageIndex(1)), Some(LAST));
    assert_eq!(take(&mapping, PageIndex(1)..PageIndex::END, 10), [LAST.0]);
    assert_eq!(mapping.end_writeback(ALL), 1);
    assert!(mapping.get(PageIndex::END).is_none());
    assert_eq!(mapping.remove(ALL).pages, 2);
    assert_eq!(mapping.pages(), 0);
}

#[test]
fn the_clock_spares_a_referenced_page_once() {
    for count in [1, 2, 200] {
        let (budget, mapping) = mapping();
        for index in 0..count {
            mapping.insert_clean(PageIndex(index), page(0));
        }
        mapping.get(PageIndex(0));
        let met = mapping.reclaim(1000 * PAGE);
        let freed = u64::from(count - 1) * PAGE;
        assert_eq!((met.freed, met.spared), (freed, PAGE));
        assert_eq!(mapping.reclaim(1000 * PAGE).freed, PAGE);
        assert_eq!((mapping.pages(), budget.used()), (0, 0));
    }
}

#[test]
fn reclaim_frees_no_more_than_asked() {
    let (_, mapping) = mapping();
    for index in 0..1000 {
        mapping.insert_clean(PageIndex(index), page(0));
    }
    assert_eq!(mapping.reclaim(10 * PAGE - 1).freed, 10 * PAGE);
    assert_eq!(mapping.reclaim(100 * PAGE).freed, 100 * PAGE);
    assert_eq!(mapping.pages(), 890);
}

#[test]
fn writeback_of_a_mostly_clean_file_scans_dirty_chunks_only() {
    let (_, mapping) = mapping();
    for index in 0..1 << 18 {
        mapping.insert_clean(PageIndex(index), page(0));
    }
    let start = std::time::Instant::now();
    for round in 0..10_000 {
        let index = PageIndex(round * 26 % (1 << 18));
        mapping.store_dirty(index, page(1), Delalloc::Keep);
        assert_eq!(mapping.next_dirty(PageIndex(0)), Some(index));
        assert_eq!(mapping.next_unlanded(PageIndex(0)), Some(index));
        assert_eq!(take(&mapping, ALL, 100), [index.0]);
        assert_eq!(mapping.end_writeback(ALL), 1);
    }
    // Scans of 4,096 chunks in each round would take seconds.
    assert!(start.elapsed().as_millis() < 1000, "{:?}", start.elapsed());
}

#[derive(Clone, Debug)]
enum Step {
    Get(PageIndex),
    InsertClean(PageIndex, u8),
    StoreDirty(PageIndex, u8, bool),
    Modify(PageIndex, u8, bool),
    Patch(PageIndex, u8),
    NextDirty(PageIndex),
    NextUnlanded(PageIndex),
    TakeDirty(Range<PageIndex>, usize),
    End(Range<PageIndex>),
    Fail(Range<PageIndex>),
    EndDelalloc(Range<PageIndex>),
    Remove(Range<PageIndex>),
    Invalidate(Range<PageIndex>),
    Reclaim(u64),
}

/// Page numbers that are adjacent, at chunk borders, and far apart.
fn index() -> impl Strategy<Value = PageIndex> {
    prop_oneof![
        4 => 0..6u32,
        4 => 60..70u32,
        2 => 120..200u32,
        1 => 1_000_000..1_000_003u32,
        1 => LAST.0 - 2..=LAST.0,
    ]
    .prop_map(PageIndex)
}
fn range() -> impl Strategy<Value = Range<PageIndex>> {
    (index(), index(), any::<bool>()).prop_map(|(a, b, open)| match open {
        true => a..PageIndex::END,
        false => a.min(b)..a.max(b) + 1,
    })
}
fn tag(set: bool) -> Delalloc {
    match set {
        true => Delalloc::Set,
        false => Delalloc::Keep,
    }
}
fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        index().prop_map(Step::Get),
        (index(), any::<u8>()).prop_map(|(i, b)| Step::InsertClean(i, b)),
        (index(), any::<u8>(), any::<bool>()).prop_map(|(i, b, d)| Step::StoreDirty(i, b, d)),
        (index(), any::<u8>(), any::<bool>()).prop_map(|(i, b, d)| Step::StoreDirty(i, b, d)),
        (index(), any::<u8>(), any::<bool>()).prop_map(|(i, b, d)| Step::Modify(i, b, d)),
        (index(), any::<u8>()).prop_map(|(i, b)| Step::Patch(i, b)),
        index().prop_map(Step::NextDirty),
        index().prop_map(Step::NextUnlanded),
        (range(), 0..70usize).prop_map(|(r, m)| Step::TakeDirty(r, m)),
        range().prop_map(Step::End),
        range().prop_map(Step::Fail),
        range().prop_map(Step::EndDelalloc),
        range().prop_map(Step::Remove),
        range().prop_map(Step::Invalidate),
        (0..9u64).prop_map(Step::Reclaim),
    ]
}

#[derive(Clone, Default)]
struct ModelPage {
    byte: u8,
    state: PageState,
    referenced: bool,
}
impl ModelPage {
    fn evictable(&self) -> bool {
        self.state == PageState::default()
    }
    fn takeable(&self) -> bool {
        self.state.dirty && !self.state.writeback
    }
}
type Model = BTreeMap<PageIndex, ModelPage>;

fn run(steps: &[Step]) {
    let (budget, mapping) = mapping();
    let mut model = Model::new();
    for step in steps {
        apply(&mapping, &mut model, step.clone());
        let count = |f: fn(&ModelPage) -> bool| model.values().filter(|p| f(p)).count() as u64;
        assert_eq!(mapping.pages(), model.len() as u64, "{step:?}");
        assert_eq!(mapping.dirty_pages(), count(|p| p.state.dirty), "{step:?}");
        assert_eq!(
            mapping.writeback_pages(),
            count(|p| p.state.writeback),
            "{step:?}"
        );
        let delalloc = count(|p| p.state.delalloc);
        assert_eq!(mapping.delalloc_pages(), delalloc, "{step:?}");
        for (index, page) in &model {
            assert_eq!(mapping.state(*index), Some(page.state), "{step:?}");
        }
        assert_eq!(budget.used(), model.len() as u64 * PAGE);
    }
    let mut seen = 0;
    mapping.get_range(pages(0..300), |index, buf| {
        assert_eq!(index.0, seen);
        seen += 1;
        assert_eq!(
            buf.map(|buf| buf[0]),
            model.get(&index).map(|page| page.byte)
        );
    });
    assert_eq!(seen, 300);
    drop(mapping);
    assert_eq!(budget.used(), 0);
}

fn apply(mapping: &Mapping, model: &mut Model, step: Step) {
    match step {
        Step::Get(i) => {
            let expected = model.get_mut(&i).map(|page| {
                page.referenced = true;
                page.byte
            });
            assert_eq!(mapping.get(i).map(|buf| buf[0]), expected);
        }
        Step::InsertClean(i, byte) => {
            let kept = model.entry(i).or_insert(ModelPage {
                byte,
                ..Default::default()
            });
            assert_eq!(mapping.insert_clean(i, page(byte))[0], kept.byte);
        }
        Step::StoreDirty(i, byte, delalloc) => {
            let held = model.contains_key(&i);
            let entry = model.entry(i).or_default();
            let before = entry.state;
            entry.byte = byte;
            entry.state.dirty = true;
            entry.state.delalloc |= delalloc;
            entry.referenced |= held;
            assert_eq!(mapping.store_dirty(i, page(byte), tag(delalloc)), before);
        }
        Step::Modify(i, byte, delalloc) => {
            let expected = model.get_mut(&i).map(|page| {
                let before = page.state;
                page.byte = byte;
                page.state.dirty = true;
                page.state.delalloc |= delalloc;
                page.referenced = true;
                before
            });
            assert_eq!(
                mapping.modify(i, tag(delalloc), |bytes| bytes[0] = byte),
                expected
            );
        }
        Step::Patch(i, byte) => {
            let found = model.get_mut(&i).map(|page| page.byte = byte).is_some();
            assert_eq!(mapping.patch(i, |bytes| bytes[0] = byte), found);
        }
        Step::NextDirty(from) => {
            let expected = model.range(from..).find(|(_, p)| p.takeable());
            assert_eq!(mapping.next_dirty(from), expected.map(|(i, _)| *i));
        }
        Step::NextUnlanded(from) => {
            let expected = model.range(from..).find(|(_, p)| !p.evictable());
            assert_eq!(mapping.next_unlanded(from), expected.map(|(i, _)| *i));
        }
        Step::TakeDirty(range, max) => {
            let mut out = Vec::new();
            let taken = mapping.take_dirty(range.clone(), max, &mut out);
            assert_eq!(taken, out.len());
            let mut expected = model
                .range_mut(range)
                .filter(|(_, p)| p.takeable())
                .take(max);
            for got in &out {
                let (index, page) = expected.next().unwrap();
                assert_eq!(
                    (got.index, got.buf[0], got.delalloc),
                    (*index, page.byte, page.state.delalloc)
                );
                page.state.dirty = false;
                page.state.writeback = true;
            }
            assert!(expected.next().is_none());
        }
        Step::End(range) => {
            let mut ended = 0;
            for (_, page) in model.range_mut(range.clone()) {
                if page.state.writeback {
                    ended += 1;
                    page.state.writeback = false;
                    page.state.delalloc = false;
                }
            }
            assert_eq!(mapping.end_writeback(range), ended);
        }
        Step::Fail(range) => {
            let mut became = 0;
            for (_, page) in model.range_mut(range.clone()) {
                if page.state.writeback {
                    became += u64::from(!page.state.dirty);
                    page.state.writeback = false;
                    page.state.dirty = true;
                }
            }
            assert_eq!(mapping.fail_writeback(range), became);
        }
        Step::EndDelalloc(range) => {
            let mut ended = 0;
            for (_, page) in model.range_mut(range.clone()) {
                ended += u64::from(std::mem::take(&mut page.state.delalloc));
            }
            assert_eq!(mapping.end_delalloc(range), ended);
        }
        Step::Remove(range) => {
            let mut expected = Removed::default();
            model.retain(|index, page| {
                if !range.contains(index) {
                    return true;
                }
                expected.pages += 1;
                expected.dirty += u64::from(page.state.dirty);
                expected.delalloc += u64::from(page.state.delalloc);
                false
            });
            assert_eq!(mapping.remove(range), expected);
        }
        Step::Invalidate(range) => {
            let before = model.len();
            model.retain(|index, page| !range.contains(index) || !page.evictable());
            assert_eq!(mapping.invalidate(range), (before - model.len()) as u64);
        }
        Step::Reclaim(want) => {
            let before = model.clone();
            let freed = mapping.reclaim(want * PAGE).freed / PAGE;
            assert!(freed <= want);
            // The hand's position decides which of the evictable pages are freed.
            let mut gone = 0;
            model.retain(|index, page| {
                let kept = mapping.state(*index).is_some();
                assert!(kept || page.evictable());
                gone += u64::from(!kept);
                kept
            });
            assert_eq!(gone, freed);
            let free_now = before
                .values()
                .filter(|p| p.evictable() && !p.referenced)
                .count();
            assert!(freed <= free_now as u64 || before.values().any(|p| p.referenced));
            assert!(freed >= want.min(free_now as u64), "{freed} of {want}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]
    #[test]
    fn matches_a_naive_model(steps in prop::collection::vec(step(), 1..120)) {
        run(&steps);
    }
}

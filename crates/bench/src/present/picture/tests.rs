use super::*;

const FSYNC: &str = "\
|  | files/s | SluiceFS is | flushes |
| --- | --: | --: | --: |
| SluiceFS in process | 1,000 | 1.00 × | 5 |
| kernel ext4 <&> | 250 | 4.00 × | 84,729 |
| kernel XFS | – | – | – |

Medians of 3 rounds.
";

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

fn fsync() -> Picture {
    Picture {
        texts: texts(&[FSYNC]),
        columns: texts(&["files/s"]),
        ..Picture::default()
    }
}

/// The class and the width of each bar.
fn bars(svg: &str) -> Vec<(&str, f64)> {
    let attribute = |bar: &'_ str, name: &str| -> String {
        let value = bar.split_once(&format!(" {name}=\"")).unwrap().1;
        value.split_once('"').unwrap().0.to_owned()
    };
    let bars = svg.split("<rect ").filter(|bar| bar.contains("<title>"));
    bars.map(|bar| {
        let class = if bar.contains("class=\"ours\"") {
            "ours"
        } else {
            "theirs"
        };
        (class, attribute(bar, "width").parse().unwrap())
    })
    .collect()
}

#[test]
fn the_length_of_a_bar_is_proportional_to_its_value() {
    let svg = fsync().draw().unwrap();
    let bars = bars(&svg);
    assert_eq!(
        bars.iter().map(|bar| bar.0).collect::<Vec<_>>(),
        ["ours", "theirs", "theirs"]
    );
    let (longest, shorter, unknown) = (bars[0].1, bars[1].1, bars[2].1);
    assert!(
        longest > 100.0 && (longest / shorter - 4.0).abs() < 0.01,
        "{svg}"
    );
    assert_eq!(unknown, 0.0);
}

#[test]
fn a_picture_has_the_texts_of_the_table_and_loads_no_other_file() {
    let svg = Picture {
        captions: texts(&["a < b"]),
        ..fsync()
    }
    .draw()
    .unwrap();
    for part in [
        ">SluiceFS in process</text>",
        ">kernel ext4 &lt;&amp;&gt;</text>",
        ">1,000</text>",
        ">250  (4.00 ×)</text>",
        ">–</text>",
        ">In parentheses: how many times faster the first bar is.</text>",
        ">a &lt; b</text>",
        "prefers-color-scheme: dark",
    ] {
        assert!(svg.contains(part), "{part} in {svg}");
    }
    for outside in ["<script", "@import", "url(", "href"] {
        assert!(!svg.contains(outside), "{outside}");
    }
}

#[test]
fn panels_of_one_column_have_one_axis() {
    let slow = "| | files/s |\n|---|--:|\n| SluiceFS | 100 |\n";
    let picture = Picture {
        texts: texts(&[FSYNC, slow]),
        titles: texts(&["one thread", "four threads"]),
        ..fsync()
    };
    let svg = picture.draw().unwrap();
    assert!(
        svg.contains(">one thread<") && svg.contains(">files/s<"),
        "{svg}"
    );
    let bars = bars(&svg);
    assert!((bars[0].1 / bars[3].1 - 10.0).abs() < 0.1, "{svg}");
    let svg = Picture {
        columns: texts(&["files/s", "flushes"]),
        ..fsync()
    }
    .draw()
    .unwrap();
    let bars = self::bars(&svg);
    assert_eq!(bars[0].1, bars[4].1, "the longest of each column");
    assert_eq!(svg.matches("(4.00 ×)</text>").count(), 1, "{svg}");
}

#[test]
fn a_cell_may_have_its_ratio_to_the_first_line() {
    let table = "| | read |\n|---|--:|\n| SluiceFS | 798   1.00 × |\n| ext4 | 1,503   0.53 × |\n";
    let picture = Picture {
        texts: texts(&[table]),
        columns: texts(&["read"]),
        ..Picture::default()
    };
    let svg = picture.draw().unwrap();
    for part in [">798</text>", ">1,503  (0.53 ×)</text>"] {
        assert!(svg.contains(part), "{part} in {svg}");
    }
}

#[test]
fn a_logarithmic_scale_has_powers_of_ten() {
    let table = "| | p99 |\n|---|--:|\n| SluiceFS | 900 µs |\n| ext4 | 90 ms |\n";
    let picture = Picture {
        texts: texts(&[table]),
        columns: texts(&["p99"]),
        logarithmic: texts(&["p99"]),
        ..Picture::default()
    };
    let svg = picture.draw().unwrap();
    for part in [">logarithmic scale<", ">100 µs<", ">1 ms<", ">10 ms<"] {
        assert!(svg.contains(part), "{part} in {svg}");
    }
    let bars = bars(&svg);
    let decades = 900f64.log10() - 2.0;
    let part = decades / (decades + 2.0);
    assert!((bars[0].1 / bars[1].1 - part).abs() < 0.001, "{svg}");
}

#[test]
fn a_panel_for_each_line_has_a_bar_for_each_column() {
    let table = "| | ours | fio | is |\n|---|--:|--:|--:|\n| write | 20 | 10 | 2 × |\n| read | 5 | – | – |\n";
    let picture = Picture {
        texts: texts(&[table]),
        columns: texts(&["ours", "fio"]),
        ours: Some("ours".to_owned()),
        panels: Panels::ByLine,
        ..Picture::default()
    };
    let svg = picture.draw().unwrap();
    let bars = bars(&svg);
    let classes: Vec<_> = bars.iter().map(|bar| bar.0).collect();
    assert_eq!(classes, ["ours", "theirs", "ours", "theirs"]);
    assert!((bars[0].1 / bars[2].1 - 4.0).abs() < 0.01, "{svg}");
    assert!(svg.contains(">write<") && svg.contains(">read<"));
}

#[test]
fn all_bars_have_one_colour_if_none_is_named_after_sluicefs() {
    let table = "| | two are |\n|---|--:|\n| create | 1.7 × |\n| stat | 1.6 × |\n";
    let picture = Picture {
        texts: texts(&[table]),
        columns: texts(&["two are"]),
        ..Picture::default()
    };
    let svg = picture.draw().unwrap();
    assert!(bars(&svg).iter().all(|bar| bar.0 == "ours"));
}

#[test]
fn wrong_names_are_errors() {
    let error = |picture: Picture| picture.draw().unwrap_err();
    let unknown = Picture {
        columns: texts(&["MiB/s"]),
        ..fsync()
    };
    let names = r#""files/s", "SluiceFS is", "flushes""#;
    let expected = format!("no column \"MiB/s\"; columns are: {names}");
    assert_eq!(error(unknown.clone()), expected);
    let by_line = Picture {
        panels: Panels::ByLine,
        ..unknown
    };
    assert_eq!(error(by_line), expected);
    let scale = Picture {
        logarithmic: texts(&["flushes"]),
        ..fsync()
    };
    assert_eq!(error(scale), r#"column "flushes" is not drawn"#);
    let titles = Picture {
        titles: texts(&["a", "b"]),
        ..fsync()
    };
    assert_eq!(error(titles), "2 titles for 1 panels");
}

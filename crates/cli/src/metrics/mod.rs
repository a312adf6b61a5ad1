//! Statistics of a mounted volume for Prometheus, over HTTP.
//!
//! | module | contents |
//! |---|---|
//! | `families` | metrics as text (version 0.0.4 of Prometheus's format) |
//! | `devices` | counters of devices |
//! | `exposition` | the metrics of a volume, from its statistics |
//! | `connection` | one HTTP connection: request, response |
//! | `server` | a listener and a few connections, on one thread |

mod connection;
mod devices;
mod exposition;
mod families;
mod server;

pub use exposition::{Access, Facts, Now, text};
pub use server::{Endpoint, Serving};

use std::net::SocketAddr;

/// Parses `ADDRESS:PORT`, as clap needs it. Names are not resolved.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!("\"{text}\" is not an address and a port, such as 127.0.0.1:9100 or [::1]:9100")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_port() {
        for good in ["127.0.0.1:9100", "[::1]:9100", "0.0.0.0:0"] {
            assert_eq!(parse_address(good).unwrap().to_string(), good);
        }
        for bad in [
            "",
            "9100",
            ":9100",
            "127.0.0.1",
            "::1",
            "localhost:9100",
            "1.2.3.4:70000",
        ] {
            assert!(
                parse_address(bad).unwrap_err().contains("[::1]:9100"),
                "{bad}"
            );
        }
    }
}

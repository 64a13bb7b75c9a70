// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk;

/// Whether files bypass the page cache (`O_DIRECT`).
public enum DirectIo {
    /// Direct where a probe of the folder succeeds and while no other process uses the folder,
    /// buffered otherwise.
    AUTO,
    /// Direct, or the store does not open.
    ON,
    /// Through the page cache.
    OFF
}

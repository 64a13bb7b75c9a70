// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.memory;

/// Kinds of memory a transfer can start or end in; NIXL's DRAM, VRAM, FILE, OBJ and BLK (here
/// VOLUME: a raw block device).
public enum MemoryKind {
    HOST,
    DEVICE,
    FILE,
    OBJECT,
    VOLUME
}

// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.memory;

/// Kinds of memory a transfer can start or end in; NIXL's DRAM, VRAM, FILE, OBJ and BLK (here
/// VOLUME: a raw block device). Wire numbers are fixed.
public enum MemoryKind {
    HOST(0),
    DEVICE(1),
    FILE(2),
    OBJECT(3),
    VOLUME(4);

    private final int wire;

    MemoryKind(int wire) {
        this.wire = wire;
    }

    public int wire() {
        return wire;
    }
}

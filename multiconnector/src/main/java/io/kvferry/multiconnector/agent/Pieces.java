// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.spi.transfer.BackendCapabilities;
import io.kvferry.spi.transfer.DescriptorList;

import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;

/// Where a descriptor list is cut for a backend that does not take all of it at once.
final class Pieces {
    private Pieces() {}

    /// Ranges `from` (inclusive) to `to` (exclusive) of both lists.
    record Piece(int from, int to) {
        int[] indices() {
            return IntStream.range(from, to).toArray();
        }
    }

    /// As few as the limits allow; one if the list fits.
    static List<Piece> of(BackendCapabilities can, DescriptorList list) {
        if (list.count() <= can.maxDescriptors() && list.bytes() <= can.maxBytes()) {
            return List.of(new Piece(0, list.count()));
        }
        var pieces = new ArrayList<Piece>();
        int from = 0;
        long size = 0;
        for (int i = 0; i < list.count(); i++) {
            long length = list.length(i);
            if (i > from && (i - from == can.maxDescriptors() || size + length > can.maxBytes())) {
                pieces.add(new Piece(from, i));
                from = i;
                size = 0;
            }
            size += length;
        }
        pieces.add(new Piece(from, list.count()));
        return pieces;
    }
}

// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.tcp;

/// Counts the requests of a slice that have no answer yet, and those of them that have not left as
/// a whole. They leave in order, and a flush leaves nothing behind. Made once for a connection.
///
/// Threading: the thread that uses the connection.
final class Unanswered {
    private int count;

    /// Of these, the last ones may not have left.
    private int queued;

    private long flushesSeen;

    void clear() {
        count = 0;
        queued = 0;
    }

    int count() {
        return count;
    }

    /// The last byte of a request has just been put into the output.
    void asked(WireOutput out) {
        look(out);
        count++;
        queued++;
    }

    /// The oldest one has its answer.
    ///
    /// @return false when it has not left yet, so that the peer cannot have it
    boolean answered(WireOutput out) {
        look(out);
        boolean left = queued == 0 || queued < count;
        count--;
        return left;
    }

    private void look(WireOutput out) {
        if (flushesSeen != out.flushes()) {
            flushesSeen = out.flushes();
            queued = 0;
        }
    }
}

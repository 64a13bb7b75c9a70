// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.nativeengine;

import io.kvferry.backend.mooncake.te.Notification;
import io.kvferry.toolkit.bounded.GrowSafeQueue;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.locks.ReentrantLock;

/// Notifications that the library has received. It hands out all at once, so what was not asked for
/// waits here.
///
/// Threading: any thread, while the library's engine lives.
final class NativeInbox {
    private final TeLibrary library;
    private final MemorySegment engine;
    private final ReentrantLock lock = new ReentrantLock();
    private final Queue<Notification> waiting = new GrowSafeQueue<>();

    NativeInbox(TeLibrary library, MemorySegment engine) {
        this.library = library;
        this.engine = engine;
    }

    List<Notification> take(int max) {
        lock.lock();
        try {
            fetch();
            List<Notification> taken = new ArrayList<>(Math.min(max, waiting.size()));
            while (taken.size() < max && !waiting.isEmpty()) {
                taken.add(waiting.remove());
            }
            return taken;
        } finally {
            lock.unlock();
        }
    }

    private void fetch() {
        try (Arena scratch = Arena.ofConfined()) {
            MemorySegment count = scratch.allocate(ValueLayout.JAVA_INT);
            library.notifications(engine, count)
                    .ifPresent(list -> {
                        int messages = count.get(ValueLayout.JAVA_INT, 0);
                        try {
                            for (int i = 0; i < messages; i++) {
                                long at = i * TeLibrary.NOTIFY.byteSize();
                                String text = TeLibrary.string(list, at + 8);
                                if (!text.isEmpty()) {
                                    waiting.add(new Notification(TeLibrary.string(list, at), text));
                                }
                            }
                        } finally {
                            library.freeNotifications(list, messages);
                        }
                    });
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker;

import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.WorkerHalf;
import io.kvferry.spi.wire.Payload;

import org.jspecify.annotations.Nullable;

import java.time.Duration;
import java.util.Optional;
import java.util.function.Function;
import java.util.function.Supplier;

/// Opens a connector's worker half in a thread of its own while the rank goes on without it.
///
/// Threading: made, asked and closed on the rank's step thread.
///
/// @param <H> the half's interface
final class HalfOpening<H extends WorkerHalf> implements AutoCloseable {
    /// How long [#close] waits for a half that is just being opened.
    private static final Duration CLOSE_LIMIT = Duration.ofSeconds(5);

    private final Thread thread;
    private volatile RankResult.@Nullable Opened opened;
    private @Nullable H half; // written before `opened`
    private boolean told;

    /// @param news is called when it is done, in whatever way
    HalfOpening(String what, Supplier<H> open, Function<H, Payload> handshake, Runnable news) {
        thread =
                Thread.ofPlatform()
                        .daemon()
                        .name("kvferry-open-connector")
                        .unstarted(() -> {
                            opened = open(what, open, handshake);
                            news.run();
                        });
        thread.start();
    }

    private RankResult.Opened open(String what, Supplier<H> open, Function<H, Payload> handshake) {
        H made = null;
        try {
            made = open.get();
            var told = handshake.apply(made);
            half = made;
            return new RankResult.Opened(told, Optional.empty());
        } catch (Throwable e) { // the border to the plugin
            var failure = Failure.of(e);
            if (made != null) {
                try {
                    made.close();
                } catch (Throwable again) {
                    e.addSuppressed(again);
                }
            }
            return new RankResult.Opened(
                    Payload.EMPTY,
                    Optional.of(
                            new Failure(
                                    failure.code(),
                                    what + " could not be opened again: " + failure.message())));
        }
    }

    /// How it went, once.
    Optional<RankResult.Opened> takeOpened() {
        var done = opened;
        if (done == null || told) {
            return Optional.empty();
        }
        told = true;
        return Optional.of(done);
    }

    /// The half, if it could be opened; the caller closes it.
    @Nullable H take() {
        var done = opened;
        var taken = done == null ? null : half;
        if (done != null) {
            half = null;
        }
        return taken;
    }

    /// Closes a half that nobody has taken.
    ///
    /// @throws IllegalStateException when it is still being opened: it may touch the cache for ever
    @Override
    public void close() {
        try {
            thread.join(CLOSE_LIMIT);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        if (opened == null) {
            throw new IllegalStateException("a connector is still being opened");
        }
        var open = take();
        if (open != null) {
            open.close();
        }
    }
}

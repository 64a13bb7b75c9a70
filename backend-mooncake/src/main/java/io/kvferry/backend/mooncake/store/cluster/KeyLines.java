// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.cluster;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.http.HttpResponse.BodySubscriber;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Flow;
import java.util.function.Predicate;

/// The first lines of a body that are wanted; the rest of it is not read. A body may be of any
/// length, a line may not.
///
/// Threading: as HTTP's client calls it.
final class KeyLines implements BodySubscriber<List<String>> {
    static final int LONGEST = 64 << 10;

    private final Predicate<String> wanted;
    private final int most;
    private final List<String> keys = new ArrayList<>();
    private final ByteArrayOutputStream line = new ByteArrayOutputStream();
    private final CompletableFuture<List<String>> body = new CompletableFuture<>();
    private final CompletableFuture<Flow.Subscription> source = new CompletableFuture<>();

    KeyLines(Predicate<String> wanted, int most) {
        this.wanted = wanted;
        this.most = most;
    }

    @Override
    public CompletionStage<List<String>> getBody() {
        return body;
    }

    @Override
    public void onSubscribe(Flow.Subscription subscription) {
        source.complete(subscription);
        subscription.request(Long.MAX_VALUE);
    }

    @Override
    public void onNext(List<ByteBuffer> buffers) {
        for (ByteBuffer buffer : buffers) {
            while (buffer.hasRemaining() && !body.isDone()) {
                byte next = buffer.get();
                if (next == '\n') {
                    end();
                } else if (line.size() == LONGEST) {
                    body.completeExceptionally(
                            new IOException("a line of more than " + LONGEST + " bytes"));
                } else {
                    line.write(next);
                }
            }
        }
        if (body.isDone()) {
            source.thenAccept(Flow.Subscription::cancel);
        }
    }

    private void end() {
        String text = line.toString(StandardCharsets.UTF_8);
        line.reset();
        String key = text.endsWith("\r") ? text.substring(0, text.length() - 1) : text;
        if (keys.size() < most && wanted.test(key)) {
            keys.add(key);
        }
        if (keys.size() >= most) {
            body.complete(keys);
        }
    }

    @Override
    public void onError(Throwable failure) {
        body.completeExceptionally(failure);
    }

    @Override
    public void onComplete() {
        if (!body.isDone()) {
            end();
            body.complete(keys);
        }
    }
}

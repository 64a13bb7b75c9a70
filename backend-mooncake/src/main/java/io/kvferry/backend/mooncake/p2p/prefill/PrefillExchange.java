// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.prefill;

import io.kvferry.backend.mooncake.p2p.copy.CopyPlan;
import io.kvferry.backend.mooncake.p2p.wire.PeerExtension;
import io.kvferry.backend.mooncake.p2p.wire.XferEncoder;
import io.kvferry.backend.mooncake.p2p.wire.XferMetadata;
import io.kvferry.backend.mooncake.p2p.wire.XferResponse;
import io.kvferry.spi.Deadline;
import io.kvferry.toolkit.zmtp.SideChannel;

import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/// One request message of a decoder and the answers given so far: one per request id, FINISH with
/// the last one.
///
/// Threading: the prefill loop.
final class PrefillExchange {
    private final SideChannel.Asker asker;
    private final XferMetadata message;
    private final CopyPlan plan;
    private final long echo;
    private final Deadline writeBy;
    private final Set<String> open;
    private final String decoder;
    private boolean gone;
    private Runnable afterwards = () -> {};

    /// @param echo the layout id that answers carry, 0 for none
    /// @param writeBy after it the decoder takes no more writes
    PrefillExchange(
            SideChannel.Asker asker,
            XferMetadata message,
            CopyPlan plan,
            long echo,
            Deadline writeBy) {
        this.asker = asker;
        this.message = message;
        this.plan = plan;
        this.echo = echo;
        this.writeBy = writeBy;
        this.open = new HashSet<>(message.reqBlocks().keySet());
        var reader = message.extension().map(PeerExtension::reader).orElse("");
        this.decoder =
                reader.isEmpty() ? message.segmentName() + "#" + message.remoteTpRank() : reader;
    }

    XferMetadata message() {
        return message;
    }

    CopyPlan plan() {
        return plan;
    }

    Deadline writeBy() {
        return writeBy;
    }

    /// Identifies the decoder worker as well as its message allows. Its requests share one string,
    /// since they are kept for long.
    String decoder() {
        return decoder;
    }

    boolean isOpen(String request) {
        return open.contains(request);
    }

    boolean isOpen() {
        return !open.isEmpty();
    }

    /// The host of the decoder.
    String host() {
        return asker.host();
    }

    /// The connection that the request came over has ended.
    void gone() {
        gone = true;
        end();
    }

    /// @param action runs once, after the actions given before, when every id has been answered or
    ///   the decoder is gone
    void afterwards(Runnable action) {
        var before = afterwards;
        afterwards =
                () -> {
                    before.run();
                    action.run();
                };
        if (gone || open.isEmpty()) {
            end();
        }
    }

    private void end() {
        var action = afterwards;
        afterwards = () -> {};
        action.run();
    }

    boolean isGone() {
        return gone;
    }

    void ok(String request) {
        if (open.remove(request)) {
            send(List.of(request), List.of(), "");
        }
    }

    /// Says where a decoder that reads finds the blocks of a request that is not answered yet.
    void offer(String request, byte[] offer) {
        if (open.contains(request)) {
            asker.answer(
                    XferEncoder.response(
                            new XferResponse(
                                    XferResponse.Status.CONTINUE,
                                    List.of(),
                                    List.of(),
                                    "",
                                    echo,
                                    Map.of(request, offer))));
        }
    }

    void failed(List<String> requests, String text) {
        var still = requests.stream().filter(open::remove).toList();
        if (!still.isEmpty()) {
            send(List.of(), still, text);
        }
    }

    /// Ends an exchange that asked for nothing.
    void finishEmpty() {
        send(List.of(), List.of(), "");
    }

    private void send(List<String> ok, List<String> failed, String text) {
        if (!open.isEmpty()) {
            asker.answer(response(XferResponse.Status.CONTINUE, ok, failed, text));
            return;
        }
        try {
            asker.last(response(XferResponse.Status.FINISH, ok, failed, text));
        } finally {
            end();
        }
    }

    private byte[] response(
            XferResponse.Status status, List<String> ok, List<String> failed, String text) {
        return XferEncoder.response(new XferResponse(status, ok, failed, text, echo));
    }
}

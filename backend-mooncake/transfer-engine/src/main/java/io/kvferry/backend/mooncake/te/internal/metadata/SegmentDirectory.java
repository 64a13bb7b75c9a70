// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.metadata;

import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.internal.HostPort;
import io.kvferry.backend.mooncake.te.internal.WireJson;
import io.kvferry.backend.mooncake.te.internal.handshake.Handshake;
import io.kvferry.backend.mooncake.te.internal.handshake.Handshake.Message;
import io.kvferry.backend.mooncake.te.internal.handshake.HandshakeClient;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.net.Cancellation;

import tools.jackson.databind.JsonNode;

import java.nio.charset.StandardCharsets;
import java.util.Optional;
import java.util.function.Supplier;

/// Finds peers' documents and publishes our own, with or without a metadata server.
///
/// Threading: any thread; methods block until their deadline.
public final class SegmentDirectory implements AutoCloseable {
    private final HandshakeClient client;
    private final Optional<MetadataStore> store;
    private final String prefix;
    private final Supplier<byte[]> own;

    /// @param own the current document of this engine
    public SegmentDirectory(EngineConfig config, HandshakeClient client, Supplier<byte[]> own) {
        this.client = client;
        this.own = own;
        this.store =
                config.p2p()
                        ? Optional.empty()
                        : Optional.of(MetadataStore.open(config.metadata(), config.secret()));
        this.prefix = "mooncake/" + (config.clusterId().isEmpty() ? "" : config.clusterId() + "/");
    }

    /// @throws KvFerryException as [TransferEngine#open]
    public SegmentDocument find(String segmentName, Deadline deadline, Cancellation cancellation) {
        String text =
                store.isPresent()
                        ? store.get()
                                .get(segmentKey(segmentName), deadline, cancellation)
                                .orElseThrow(() ->
                                        new KvFerryException(
                                                ErrorCode.NOT_FOUND,
                                                "the metadata server has no segment '"
                                                        + segmentName
                                                        + "'"))
                        : client.ask(
                                        HostPort.parse(segmentName),
                                        new Message(Handshake.METADATA, own.get()),
                                        deadline,
                                        cancellation)
                                .text();
        if (text.strip().equals("null")) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE,
                    "peer "
                            + segmentName
                            + " does not answer P2PHANDSHAKE metadata; it uses a metadata server");
        }
        return SegmentDocument.decode(text);
    }

    /// The address of a segment's handshake port.
    public HostPort handshakeOf(String segmentName, Deadline deadline, Cancellation cancellation) {
        if (store.isEmpty()) {
            return HostPort.parse(segmentName);
        }
        String what = "rpc_meta of '" + segmentName + "'";
        String text =
                store.get()
                        .get(rpcKey(segmentName), deadline, cancellation)
                        .orElseThrow(() ->
                                new KvFerryException(
                                        ErrorCode.NOT_FOUND, "the metadata server has no " + what));
        JsonNode json = WireJson.objectOf(WireJson.parse(text, what), what);
        return new HostPort(
                WireJson.text(json, "ip_or_host_name", what),
                WireJson.smallInt(json, "rpc_port", 1, 65_535, what));
    }

    /// The address of a segment's data port: the host its name resolves to, with the port of the
    /// document.
    public HostPort dataOf(SegmentDocument document, Deadline deadline, Cancellation cancellation) {
        return new HostPort(
                handshakeOf(document.name(), deadline, cancellation).host(), document.dataPort());
    }

    /// Announces where this engine's handshake port is. A document that an earlier process left
    /// under the name is deleted first: servers refuse to overwrite it.
    void announce(String segmentName, HostPort handshake, Deadline deadline) {
        if (store.isPresent()) {
            byte[] document =
                    WireJson.bytes(
                            WireJson.object()
                                    .put("ip_or_host_name", handshake.host())
                                    .put("rpc_port", handshake.port()));
            store.get().remove(rpcKey(segmentName), deadline);
            store.get().put(rpcKey(segmentName), text(document), deadline);
        }
    }

    void publish(String segmentName, Deadline deadline) {
        if (store.isPresent()) {
            store.get().put(segmentKey(segmentName), text(own.get()), deadline);
        }
    }

    void withdraw(String segmentName, Deadline deadline) {
        if (store.isPresent()) {
            store.get().remove(segmentKey(segmentName), deadline);
            store.get().remove(rpcKey(segmentName), deadline);
        }
    }

    boolean published() {
        return store.isPresent();
    }

    private String segmentKey(String name) {
        return prefix + (name.indexOf('/') >= 0 ? "" : "ram/") + name;
    }

    private String rpcKey(String name) {
        return prefix + "rpc_meta/" + name;
    }

    private static String text(byte[] utf8) {
        return new String(utf8, StandardCharsets.UTF_8).stripTrailing();
    }

    @Override
    public void close() {
        store.ifPresent(MetadataStore::close);
    }
}

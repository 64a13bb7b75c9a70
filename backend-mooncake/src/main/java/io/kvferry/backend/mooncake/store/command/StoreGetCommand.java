// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.command;

import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.cluster.ClusterReader;
import io.kvferry.backend.mooncake.store.remote.RemoteStore;
import io.kvferry.backend.mooncake.store.remote.StoredKey;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.Option;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.toolkit.files.FileTrouble;

import tools.jackson.databind.json.JsonMapper;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Optional;

/// `kvferry store get`: the bytes of an object.
public final class StoreGetCommand extends StoreTool {
    private static final long PIECE = 1 << 30;

    @Override
    public String name() {
        return "store get";
    }

    @Override
    public String description() {
        return "Writes the bytes of an object to a new file. Exit code 1 when it is not there.";
    }

    @Override
    public Arguments arguments() {
        return new Arguments("KEY", 1, 1, "key of the object");
    }

    @Override
    public OptionSchema options() {
        return schema(
                Option.of("output", Option.Type.PATH, "file to write; it must not exist")
                        .withDefault("object.bin"));
    }

    @Override
    public int run(Context context) {
        var options = context.options();
        String key = context.arguments().getFirst();
        var cluster = cluster(options);
        if (cluster.isPresent()) {
            return read(context, cluster.get(), key);
        }
        Optional<Placed> found;
        try (var owners = open(options, context.err())) {
            found = owners.find(key);
        }
        if (found.isEmpty()) {
            context.err().println("no object " + key);
            return 1;
        }
        StoredKey object = found.get().object();
        Path file = options.path("output");
        try (var store = RemoteStore.open(found.get().owner(), object.identity(), false);
                var arena = Arena.ofShared()) {
            MemorySegment memory = arena.allocate(object.bytes(), 64);
            store.register(memory);
            var results = new long[1];
            store.get(new StoreBatch().add(key).buffer(memory), results);
            if (results[0] != object.bytes()) {
                var code = StoreCode.of(Math.min(results[0], -1));
                throw new KvFerryException(
                        code.error(), key + " could not be read: " + StoreCode.text(results[0]));
            }
            write(memory, file);
        }
        print(context, key, object.bytes(), file);
        return 0;
    }

    /// From a Mooncake cluster.
    private static int read(Context context, ClusterReader cluster, String key) {
        Path file = context.options().path("output");
        try (var reader = cluster;
                var arena = Arena.ofShared()) {
            if (reader.find(key).isEmpty()) {
                context.err().println("no object " + key);
                return 1;
            }
            MemorySegment value = reader.read(key, bytes -> arena.allocate(bytes, 64));
            write(value, file);
            print(context, key, value.byteSize(), file);
        }
        return 0;
    }

    private static void print(Context context, String key, long bytes, Path file) {
        print(
                context,
                bytes + "\t" + file,
                JsonMapper.shared()
                        .createObjectNode()
                        .put("key", key)
                        .put("bytes", bytes)
                        .put("file", file.toString()));
    }

    private static void write(MemorySegment memory, Path file) {
        try (var channel =
                FileChannel.open(file, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)) {
            for (long at = 0; at < memory.byteSize(); at += PIECE) {
                var piece =
                        memory.asSlice(at, Math.min(PIECE, memory.byteSize() - at)).asByteBuffer();
                while (piece.hasRemaining()) {
                    channel.write(piece);
                }
            }
        } catch (IOException e) {
            throw FileTrouble.exception("cannot write " + file, e);
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.command;

import io.kvferry.backend.mooncake.store.remote.StoredKey;
import io.kvferry.spi.config.Option;
import io.kvferry.spi.config.OptionSchema;

import tools.jackson.databind.json.JsonMapper;

/// `kvferry store ls`: what a store holds.
public final class StoreLsCommand extends StoreTool {
    @Override
    public String name() {
        return "store ls";
    }

    @Override
    public String description() {
        return "Lists the keys of a store with the bytes of their objects and where they are"
                + " (memory, disk).";
    }

    @Override
    public Arguments arguments() {
        return new Arguments("PREFIX", 0, 1, "only keys that begin so");
    }

    @Override
    public OptionSchema options() {
        return schema(
                Option.of("most", Option.Type.INTEGER, "how many are listed")
                        .withDefault("1000")
                        .inRange(1, 10_000));
    }

    @Override
    public int run(Context context) {
        var options = context.options();
        String beginning = context.arguments().isEmpty() ? "" : context.arguments().getFirst();
        int most = Math.toIntExact(options.integer("most"));
        var cluster = cluster(options);
        if (cluster.isPresent()) {
            try (var reader = cluster.get()) {
                for (var object : reader.list(beginning, most)) {
                    print(context, object.bytes(), object.tiers(), object.key());
                }
            }
            return 0;
        }
        try (var owners = open(options, context.err())) {
            var found = owners.list(beginning, most);
            for (Placed placed : found) {
                StoredKey object = placed.object();
                print(context, object.bytes(), object.tiers(), object.key());
            }
            return found.isEmpty() && !owners.away().isEmpty() ? 1 : 0;
        }
    }

    private static void print(Context context, long bytes, String tiers, String key) {
        print(
                context,
                bytes + "\t" + tiers + "\t" + key,
                JsonMapper.shared()
                        .createObjectNode()
                        .put("key", key)
                        .put("bytes", bytes)
                        .put("tiers", tiers));
    }
}

// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.command;

import io.kvferry.spi.config.OptionSchema;

import tools.jackson.databind.json.JsonMapper;

/// `kvferry store exists`: whether a store holds keys.
public final class StoreExistsCommand extends StoreTool {
    @Override
    public String name() {
        return "store exists";
    }

    @Override
    public String description() {
        return "Says which keys a store holds, without granting leases. Exit code 1 when one is not"
                + " there.";
    }

    @Override
    public Arguments arguments() {
        return new Arguments("KEY", 1, 10_000, "keys to look for");
    }

    @Override
    public OptionSchema options() {
        return schema();
    }

    @Override
    public int run(Context context) {
        boolean all = true;
        var cluster = cluster(context.options());
        if (cluster.isPresent()) {
            try (var reader = cluster.get()) {
                for (String key : context.arguments()) {
                    boolean found = reader.find(key).isPresent();
                    all &= found;
                    print(context, found, key);
                }
            }
            return all ? 0 : 1;
        }
        try (var owners = open(context.options(), context.err())) {
            for (String key : context.arguments()) {
                boolean found = owners.find(key).isPresent();
                all &= found;
                print(context, found, key);
            }
        }
        return all ? 0 : 1;
    }

    private static void print(Context context, boolean found, String key) {
        print(
                context,
                (found ? "1" : "0") + "\t" + key,
                JsonMapper.shared().createObjectNode().put("key", key).put("exists", found));
    }
}

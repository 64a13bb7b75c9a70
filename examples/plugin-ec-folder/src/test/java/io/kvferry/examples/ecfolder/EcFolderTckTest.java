// SPDX-License-Identifier: Apache-2.0
package io.kvferry.examples.ecfolder;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.tck.ec.EcConnectorContract;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.ServiceLoader;

class EcFolderTckTest extends EcConnectorContract {
    @TempDir Path folder;

    @Override
    protected EcConnectorProvider provider() {
        return new EcFolderProvider();
    }

    @Override
    protected Map<String, Object> options() {
        return Map.of("folder", folder.toString());
    }

    // The contract passes with these ten lines; the hooks below let it also break things.

    @Override
    protected boolean damageStore() {
        files().forEach(file -> {
            try (var access = new RandomAccessFile(file.toFile(), "rw")) {
                int first = access.read();
                access.seek(0);
                access.write(~first);
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        });
        return true;
    }

    /// Files in place of the folders: nothing can be read or written any more.
    @Override
    protected boolean stopStore() {
        files().forEach(file -> {
            try {
                Files.delete(file);
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        });
        try (var namespaces = Files.list(folder)) {
            for (var namespace : namespaces.toList()) {
                Files.delete(namespace);
                Files.createFile(namespace);
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        return true;
    }

    private List<Path> files() {
        try (var tree = Files.walk(folder)) {
            return tree.filter(Files::isRegularFile).toList();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @Test
    void isFoundByItsServicesFile() {
        assertThat(ServiceLoader.load(EcConnectorProvider.class))
                .anySatisfy(found -> assertThat(found).isInstanceOf(EcFolderProvider.class));
    }
}

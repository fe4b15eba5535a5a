// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/elsewhere.h"

#include <gtest/gtest.h>

#include <sstream>
#include <vector>

namespace gpushare {
namespace {

std::optional<std::string> said_of(const std::string& line) {
  std::vector<std::string> words;
  std::istringstream text(line);
  for (std::string word; text >> word;) words.push_back(word);
  return starts_elsewhere(words);
}

TEST(StartsElsewhere, NamesWhatStartsTheWorkAndTheRuleThatHolds) {
  struct Row {
    const char *line, *who, *instead;
  };
  const Row rows[] = {
      {"docker run --gpus all IMAGE", "container engine", "--cgroup-parent"},
      {"/usr/bin/docker --context far exec -it x sh", "container engine", "cgroup"},
      {"podman run IMAGE", "container engine", "--cgroup-parent"},
      {"sudo docker compose up", "container engine", "cgroup"},
      {"env A=b docker start x", "container engine", "cgroup"},
      {"kubectl apply -f pod.yaml", "cluster", "kubepods"},
      {"srun -N1 ./train", "batch system", "slurm.md"},
      {"sbatch job.sh", "batch system", "slurm.md"},
      {"systemd-run ./train", "systemd", "--scope"},
      {"systemctl start train.service", "systemd", "cgroup"},
      {"tmux new -d ./train", "server", "inside"},
      {"screen -dm ./train", "server", "inside"},
      {"at now", "timed jobs", "job itself"},
      {"sudo -b ./train", "background", "sudo -b gpushare run"},
      {"nohup ssh host ./train", "other machine", "ssh HOST"},
  };
  for (const Row& row : rows) {
    const auto said = said_of(row.line);
    ASSERT_TRUE(said) << row.line;
    EXPECT_NE(said->find(row.who), std::string::npos) << *said;
    EXPECT_NE(said->find(row.instead), std::string::npos) << *said;
  }
}

TEST(StartsElsewhere, IsSilentAboutProgramsThatStartTheirWorkThemselves) {
  for (const char* line :
       {"python train.py", "docker ps", "docker build .", "systemd-run --scope ./train",
        "systemctl status x", "sudo ./train", "nohup ./train", "setsid nohup ./train",
        "./docker-train run", "python run docker", "env", "", "-x", "A=b"})
    EXPECT_EQ(said_of(line), std::nullopt) << line;
}

}  // namespace
}  // namespace gpushare

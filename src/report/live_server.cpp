// See live_server.h.
#include "report/live_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "shoal/error.h"

namespace shoal::report {

namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kLongestHead = 16384;
constexpr std::chrono::seconds kPatience{10};  // for a request and for its answer, each

// One header, without the blanks around it; nothing where there is none, or several: they might be read in two ways.
std::optional<std::string> header_of(std::string_view head, std::string_view name) {
  std::optional<std::string> found;
  for (size_t at = head.find("\r\n"); at != std::string_view::npos; at = head.find("\r\n", at + 2)) {
    const std::string_view line = head.substr(at + 2, head.find("\r\n", at + 2) - at - 2);
    const size_t colon = line.find(':');
    if (colon != name.size()) continue;
    const bool same = std::equal(name.begin(), name.end(), line.begin(),
                                 [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); });
    if (!same) continue;
    if (found) return std::nullopt;
    std::string_view value = line.substr(colon + 1);
    while (!value.empty() && value.front() == ' ') value.remove_prefix(1);
    while (!value.empty() && value.back() == ' ') value.remove_suffix(1);
    found = std::string(value);
  }
  return found;
}

Answer refusal(int status, const std::string& why) { return {status, "text/plain; charset=utf-8", why + "\n"}; }

// Whether the socket is ready before the time is up.
bool await(int fd, int16_t events, Clock::time_point until) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left <= 0) return false;
    pollfd waited{fd, events, 0};
    const int ready = ::poll(&waited, 1, static_cast<int>(left));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

std::string_view words_of(int status) {
  switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    default: return "Internal Server Error";
  }
}

}  // namespace

Answer answer_to(std::string_view head, int port, const Content& content) {
  const std::string_view request = head.substr(0, head.find("\r\n"));
  const size_t first = request.find(' '), second = request.rfind(' ');
  if (first == std::string_view::npos || first == second || !request.substr(second).starts_with(" HTTP/1.")) {
    return refusal(400, "This is no request.");
  }
  const std::optional<std::string> host = header_of(head, "host");
  const bool ours = host && (*host == fmt::format("127.0.0.1:{}", port) || *host == fmt::format("localhost:{}", port) ||
                             (port == 80 && (*host == "127.0.0.1" || *host == "localhost")));
  if (!ours) return refusal(403, "This server answers at 127.0.0.1 and localhost alone.");
  if (request.substr(0, first) != "GET") return refusal(405, "This server answers GET alone.");
  std::string_view path = request.substr(first + 1, second - first - 1);
  path = path.substr(0, path.find('?'));
  try {
    return content(path);
  } catch (const std::exception& error) {
    return refusal(500, error.what());
  }
}

std::string http_text(const Answer& answer) {
  return fmt::format(
             "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n"
             "X-Content-Type-Options: nosniff\r\nCross-Origin-Resource-Policy: same-origin\r\nConnection: "
             "close\r\n\r\n",
             answer.status, words_of(answer.status), answer.type, answer.body.size()) +
         answer.body;
}

LiveServer::LiveServer(int port, Content content) : content_(std::move(content)) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  const int yes = 1;
  ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  socklen_t length = sizeof(address);
  if (listener_ < 0 || ::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(listener_, 16) != 0 || ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    const int reason = errno;
    if (listener_ >= 0) ::close(listener_);
    throw Error("--port", fmt::format("127.0.0.1:{} cannot be listened at: {}. Give another, or 0 for a free one.",
                                      port, std::strerror(reason)));
  }
  port_ = ntohs(address.sin_port);
}

LiveServer::~LiveServer() { ::close(listener_); }

void LiveServer::serve(const std::atomic<bool>& stop) {
  while (!stop) {
    pollfd waited{listener_, POLLIN, 0};
    if (::poll(&waited, 1, 200) <= 0) continue;
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) continue;
    answer(fd);
    ::close(fd);
  }
}

void LiveServer::answer(int fd) {
  std::string head;
  const auto until = Clock::now() + kPatience;
  while (head.find("\r\n\r\n") == std::string::npos) {
    char part[4096];
    if (head.size() > kLongestHead || !await(fd, POLLIN, until)) return;
    const ssize_t got = ::recv(fd, part, sizeof(part), 0);
    if (got <= 0) return;
    head.append(part, static_cast<size_t>(got));
  }
  const std::string text = http_text(answer_to(head.substr(0, head.find("\r\n\r\n") + 2), port_, content_));
  const auto patience = Clock::now() + kPatience;
  for (size_t sent = 0; sent < text.size();) {
    if (!await(fd, POLLOUT, patience)) return;
    const ssize_t part = ::send(fd, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (part <= 0 && errno != EAGAIN && errno != EINTR) return;
    if (part > 0) sent += static_cast<size_t>(part);
  }
  ::shutdown(fd, SHUT_WR);
}

}  // namespace shoal::report

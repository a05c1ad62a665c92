// `shoal report --live`: the page, and its data anew, over HTTP on 127.0.0.1. A server for one reader: GET alone, one
// request at a time and a connection each, with a limit of time and length, and only for requests whose Host names this
// address, so that no page of another site can read a run through the browser (DNS rebinding).
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>

namespace shoal::report {

struct Answer {
  int status = 200;
  std::string type, body;
};
// What is answered to a request's head, up to its empty line. Pure. `port`: which the server listens at.
using Content = std::function<Answer(std::string_view path)>;
Answer answer_to(std::string_view head, int port, const Content& content);
// "HTTP/1.1 200 OK\r\n...", whole.
std::string http_text(const Answer& answer);

class LiveServer {
 public:
  // Listens; port 0: any free one. Throws shoal::Error where it is taken.
  LiveServer(int port, Content content);
  ~LiveServer();
  LiveServer(const LiveServer&) = delete;
  LiveServer& operator=(const LiveServer&) = delete;

  int port() const { return port_; }
  // Answers until `stop`.
  void serve(const std::atomic<bool>& stop);

 private:
  void answer(int fd);

  Content content_;
  int listener_ = -1;
  int port_ = 0;
};

}  // namespace shoal::report
